"""Leaf classifier with a per-step look at dead units."""

import contextlib
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SPECIES = 8


class LeafNet(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
        )
        self.classify = nn.Linear(2 * width, SPECIES)

    def forward(self, x):
        return self.classify(self.features(x).mean((2, 3)))


class DeadUnits:
    def __init__(self, momentum=0.95):
        self.rate = {}
        self.momentum = momentum

    def note(self, name, out):
        silent = (out.detach().amax((0, 2, 3)) <= 0).float().mean().item()
        old = self.rate.get(name, silent)
        self.rate[name] = self.momentum * old + (1 - self.momentum) * silent

    @contextlib.contextmanager
    def watching(self, net):
        handles = []
        try:
            for name, module in net.named_modules():
                if isinstance(module, nn.ReLU):
                    handles.append(
                        module.register_forward_hook(lambda m, i, o, name=name: self.note(name, o))
                    )
            yield
        finally:
            for h in handles:
                h.remove()


class Leaves:
    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.shape = F.interpolate(
            torch.randn(SPECIES, 1, 7, 7, generator=self.g), size=24, mode="bilinear"
        )

    def draw(self, n=32):
        y = torch.randint(0, SPECIES, (n,), generator=self.g)
        flip = torch.rand(n, generator=self.g) < 0.5
        x = self.shape[y] + 0.9 * torch.randn(n, 1, 24, 24, generator=self.g)
        x[flip] = x[flip].flip(-1)
        return x, y


def main():
    torch.manual_seed(0)
    net, data, dead = LeafNet(), Leaves(), DeadUnits()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.01)
    t0, acc, step = time.time(), 0.0, 0
    while True:
        x, y = data.draw()
        with dead.watching(net):
            logits = net(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        acc = 0.95 * acc + 0.05 * (logits.argmax(1) == y).float().mean().item()
        step += 1
        if step % 20 == 0:
            rates = " ".join(f"{k.split('.')[-1]}:{v:.2f}" for k, v in dead.rate.items())
            print(
                f"{time.time() - t0:6.1f}s step {step} loss {loss.item():.4f} acc {acc:.3f} dead {rates}",
                flush=True,
            )


if __name__ == "__main__":
    main()
