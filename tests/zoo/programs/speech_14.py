"""Shrink a bird-call classifier: fit a large net, then train a small one to imitate it."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SPECIES, MELS, FRAMES = 8, 24, 32


class CallSynth:
    """Mel-like patches: each species has a pitch contour, the field adds wind and gaps."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        shape = np.random.default_rng(99)
        self.base = shape.uniform(4, 19, SPECIES)
        self.sweep = shape.uniform(-5, 5, SPECIES)
        self.trill = shape.uniform(0.1, 0.9, SPECIES)

    def clean(self, n):
        y = self.rng.integers(0, SPECIES, n)
        t = np.linspace(0, 1, FRAMES)
        wobble = np.sin(t * FRAMES * self.trill[y][:, None] + self.rng.uniform(0, 6, (n, 1)))
        line = self.base[y][:, None] + self.sweep[y][:, None] * t + 1.5 * wobble
        line = line + self.rng.normal(0, 1.2, (n, 1))
        mel = np.arange(MELS)[None, :, None]
        x = np.exp(-((mel - line[:, None, :]) ** 2) / 4.0)
        x = x + self.rng.normal(0, 0.15, x.shape)
        return torch.from_numpy(x.astype(np.float32))[:, None], torch.from_numpy(y)

    def field(self, n):
        x, y = self.clean(n)
        slope = np.linspace(0.4, 0.0, MELS)[None, None, :, None]
        wind = slope * self.rng.uniform(0, 1, (n, 1, 1, 1))
        x = x + torch.from_numpy(wind.astype(np.float32))
        for row, start in enumerate(self.rng.integers(0, FRAMES - 6, n)):
            x[row, :, :, start : start + 6] = 0.0
        return x, y


def conv_net(width, drop):
    def stage(cin, cout):
        return [
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    return nn.Sequential(
        *stage(1, width),
        *stage(width, width * 2),
        *stage(width * 2, width * 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(drop),
        nn.Linear(width * 2, SPECIES),
    )


class Imitation(nn.Module):
    def __init__(self, teacher, student, temperature=3.0, alpha=0.8):
        super().__init__()
        self.teacher = teacher.requires_grad_(False)
        self.student = student
        self.temperature, self.alpha = temperature, alpha

    def forward(self, x, y):
        with torch.no_grad():
            target = self.teacher(x)
        logits = self.student(x)
        T = self.temperature
        goal = F.softmax(target / T, 1)
        soft = T * T * F.kl_div(F.log_softmax(logits / T, 1), goal, reduction="batchmean")
        hard = F.cross_entropy(logits, y)
        agree = (logits.argmax(1) == target.argmax(1)).float().mean()
        return self.alpha * soft + (1 - self.alpha) * hard, agree


def fit_teacher(calls, steps=100, batch=32):
    net = conv_net(16, drop=0.4)
    opt = torch.optim.AdamW(net.parameters(), lr=5e-3)
    net.train()
    for step in range(1, steps + 1):
        x, y = calls.field(batch)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"teacher step {step} loss {loss.item():.3f}", flush=True)
    return net.eval()


def imitate(model, calls, steps=30000, batch=32):
    opt = torch.optim.AdamW(model.student.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    model.train()
    for step in range(1, steps + 1):
        x, y = calls.field(batch)
        loss, agree = model(x, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.3f} agree {agree.item():.2f}", flush=True)


def main():
    torch.manual_seed(5)
    calls = CallSynth(seed=5)
    teacher = fit_teacher(calls)
    imitate(Imitation(teacher, conv_net(8, drop=0.0)), calls)


if __name__ == "__main__":
    main()
