import torch
from torch import nn


class DropBlock(nn.Module):
    """A residual block that is skipped with some chance in training."""

    def __init__(self, channels, survive):
        super().__init__()
        self.survive = survive
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, hidden):
        if self.training:
            if torch.rand(()) > self.survive:
                return hidden
            return torch.relu(hidden + self.body(hidden) / self.survive)
        return torch.relu(hidden + self.body(hidden))


class DeepNet(nn.Module):
    def __init__(self, channels=12, depth=8, classes=6):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, stride=4)
        chances = torch.linspace(1.0, 0.5, depth).tolist()
        self.blocks = nn.Sequential(*[DropBlock(channels, chance) for chance in chances])
        self.head = nn.Linear(channels, classes)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def mosaics(generator, tiles, count=24):
    labels = torch.randint(0, 6, (count,), generator=generator)
    images = tiles[labels].repeat(1, 1, 8, 8)
    return images + 0.8 * torch.randn(images.shape, generator=generator), labels


def main():
    torch.manual_seed(89)
    generator = torch.Generator().manual_seed(89)
    tiles = torch.randn(6, 3, 4, 4, generator=generator)
    model = DeepNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    for step in range(1_000_000):
        images, labels = mosaics(generator, tiles)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
