"""Attention-transfer distillation of a wide convolutional teacher into a narrow student."""

import time

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, SIZE, BATCH, STEPS_PER_EPOCH = 10, 16, 16, 60
MAX_SECONDS = 600


class Net(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU())
        self.stage1 = nn.Sequential(nn.Conv2d(w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU())
        self.stage2 = nn.Sequential(
            nn.Conv2d(2 * w, 4 * w, 3, 2, 1), nn.BatchNorm2d(4 * w), nn.ReLU()
        )
        self.head = nn.Linear(4 * w, CLASSES)

    def forward(self, x):
        return self.head(self.stage2(self.stage1(self.stem(x))).mean((2, 3)))


class AttentionRecorder:
    """Keeps the spatial attention maps of the stages of a network over one epoch."""

    def __init__(self, model):
        self.maps = {"stage1": [], "stage2": []}
        for name in self.maps:
            getattr(model, name).register_forward_hook(self._save(name))

    def _save(self, name):
        def hook(module, args, out):
            self.maps[name].append(F.normalize(out.pow(2).mean(1).flatten(1), dim=1))

        return hook

    def last(self, name):
        return self.maps[name][-1]

    def sharpness(self):
        return {k: torch.cat(v).amax(1).mean().item() for k, v in self.maps.items()}


class Images:
    def __init__(self):
        self.g = torch.Generator().manual_seed(0)
        self.prototypes = torch.randn(CLASSES, 3, SIZE, SIZE, generator=self.g)

    def batch(self):
        y = torch.randint(CLASSES, (BATCH,), generator=self.g)
        x = 0.4 * self.prototypes[y] + torch.randn(BATCH, 3, SIZE, SIZE, generator=self.g)
        return x, y


def pretrain(teacher, data, steps=80):
    opt = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    for _ in range(steps):
        x, y = data.batch()
        loss = F.cross_entropy(teacher(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    teacher.eval().requires_grad_(False)


def main():
    torch.manual_seed(0)
    data, teacher, student = Images(), Net(32), Net(8)
    pretrain(teacher, data)
    opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    deadline, epoch = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        t_maps, s_maps = AttentionRecorder(teacher), AttentionRecorder(student)
        tick = time.time()
        for _ in range(STEPS_PER_EPOCH):
            x, y = data.batch()
            t_logits, s_logits = teacher(x), student(x)
            soft = (
                F.kl_div(
                    F.log_softmax(s_logits / 4, -1),
                    F.softmax(t_logits / 4, -1),
                    reduction="batchmean",
                )
                * 16
            )
            transfer = sum((s_maps.last(k) - t_maps.last(k)).pow(2).mean() for k in s_maps.maps)
            loss = F.cross_entropy(s_logits, y) + 0.5 * soft + 100 * transfer
            opt.zero_grad()
            loss.backward()
            opt.step()
        epoch += 1
        rate = STEPS_PER_EPOCH / (time.time() - tick)
        print(
            f"epoch {epoch} step {epoch * STEPS_PER_EPOCH} loss {loss.item():.3f} sharpness {s_maps.sharpness()['stage2']:.3f} "
            f"{rate:.1f} steps/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
