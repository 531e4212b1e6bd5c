import argparse

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=500_000)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--warmup", type=int, default=100)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()


def decay(step):
    if step < args.warmup:
        return (step + 1) / args.warmup
    return (args.steps - step) // (args.steps - args.warmup + 1)


class Patches(nn.Module):
    def __init__(self, size=4, width=64):
        super().__init__()
        self.patch = nn.Conv2d(3, width, size, stride=size)
        self.mixers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.out = nn.Linear(width, 8)

    def forward(self, images):
        hidden = self.patch(images).flatten(2).transpose(1, 2)
        for mixer in self.mixers:
            hidden = hidden + torch.tanh(mixer(hidden))
        return self.out(hidden.mean(1))


def batch(generator, prototypes):
    labels = torch.randint(0, 8, (args.batch_size,), generator=generator)
    noise = torch.randn(args.batch_size, 3, 24, 24, generator=generator)
    return prototypes[labels] * 0.1 + noise, labels


torch.manual_seed(50)
generator = torch.Generator().manual_seed(51)
prototypes = torch.randn(8, 3, 24, 24, generator=generator)
model = Patches()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
scheduler = LambdaLR(optimizer, decay)
for step in range(args.steps):
    images, labels = batch(generator, prototypes)
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
