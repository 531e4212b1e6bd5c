import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--epochs", type=int, default=1000)
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, outputs)

    def forward(self, images):
        return torch.relu(self.norm(self.conv(images)))


class TinyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(1, 4), Block(4, 8), Block(8, 8), Block(8, 8))
        self.out = nn.Linear(8, 3)

    def forward(self, images):
        return self.out(self.blocks(images).mean((2, 3)))


def arrows(count=6000):
    generator = torch.Generator().manual_seed(105)
    labels = torch.randint(0, 3, (count,), generator=generator)
    images = 0.3 * torch.randn(count, 1, 16, 16, generator=generator)
    for row, label in enumerate(labels.tolist()):
        images[row, 0, 5 * label : 5 * label + 3] += 1.0
    return TensorDataset(images, labels)


def main():
    args = parse_args()
    torch.manual_seed(105)
    loader = DataLoader(arrows(), batch_size=args.batch_size, shuffle=True)
    model = TinyNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step, running = 0, 1.1
    for epoch in range(args.epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            running = 0.99 * running + 0.01 * loss.item()
            if step % 100 == 0:
                print(f"epoch {epoch} step {step} loss {running:.4f}", flush=True)


if __name__ == "__main__":
    main()
