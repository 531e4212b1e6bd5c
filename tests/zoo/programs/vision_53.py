import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

ACCUMULATE = 4
WARMUP = 120
TOTAL = 20000
BATCH = 24
CLASSES = 6


def pretrained_backbone():
    """Stands for weights from a hub: always the same ones."""
    rng = torch.get_rng_state()
    torch.manual_seed(1234)
    net = nn.Sequential(
        nn.Conv2d(3, 24, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(48),
        nn.ReLU(),
        nn.Conv2d(48, 96, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(96),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
    )
    calibration = torch.randn(256, 3, 40, 40)
    net.train()
    with torch.no_grad():
        for _ in range(10):
            net(calibration)
    torch.set_rng_state(rng)
    return net


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = pretrained_backbone()
        for p in self.backbone.parameters():
            p.requires_grad_(False)
        self.head = nn.Sequential(nn.LayerNorm(864), nn.Dropout(0.2), nn.Linear(864, CLASSES))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)


def make_images(n, g):
    labels = torch.randint(CLASSES, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 40), torch.linspace(-1, 1, 40), indexing="ij")
    angle = labels.view(-1, 1, 1) * math.pi / CLASSES
    freq = 5 + 2 * torch.rand(n, 1, 1, generator=g)
    phase = 6.28 * torch.rand(n, 1, 1, generator=g)
    wave = torch.sin(freq * (xx * torch.cos(angle) + yy * torch.sin(angle)) * 2 + phase)
    colour = torch.rand(n, 3, 1, 1, generator=g)
    noise = 0.6 * torch.randn(n, 3, 40, 40, generator=g)
    return wave.unsqueeze(1) * colour + noise, labels


def rate(update):
    if update < WARMUP:
        return update / WARMUP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (update - WARMUP) / (TOTAL - WARMUP))))


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    hits = 0
    for x, y in zip(images.split(100), labels.split(100)):
        hits += (model(x).argmax(1) == y).sum().item()
    model.train()
    return hits / len(labels)


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(5)
    train_x, train_y = make_images(3000, g)
    test_x, test_y = make_images(1000, g)
    model = Probe().train()
    opt = torch.optim.SGD(model.head.parameters(), lr=0.005, momentum=0.9)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, rate)
    step = 0
    while True:
        for idx in torch.randperm(len(train_x), generator=g)[:2976].split(BATCH):
            step += 1
            loss = F.cross_entropy(model(train_x[idx]), train_y[idx])
            (loss / ACCUMULATE).backward()
            if step % ACCUMULATE == 0:
                opt.step()
                opt.zero_grad()
                sched.step()
            if step % 40 == 0:
                print(
                    f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.5f}",
                    flush=True,
                )
            if step % 500 == 0:
                print(
                    f"eval at step {step}: accuracy {accuracy(model, test_x, test_y):.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
