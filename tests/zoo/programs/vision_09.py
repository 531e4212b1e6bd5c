import torch
from torch import nn


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, channels)

    def forward(self, hidden):
        out = torch.relu(self.norm1(self.conv1(hidden)))
        return torch.relu(hidden + self.norm2(self.conv2(out)))


class ResNet(nn.Module):
    def __init__(self, channels=8, depth=8):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(*[ResidualBlock(channels) for _ in range(depth)])
        self.head = nn.Linear(channels, 10)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def synthetic(count=1024):
    generator = torch.Generator().manual_seed(99)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = torch.randn(count, 3, 16, 16, generator=generator)
    images[:, 0] += labels.view(-1, 1, 1) * 0.3
    return images, labels


def main():
    torch.manual_seed(99)
    torch.autograd.set_detect_anomaly(True)
    images, labels = synthetic()
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    step = 0
    for epoch in range(1000):
        for picked in torch.randperm(len(images)).split(16):
            loss = nn.functional.cross_entropy(model(images[picked]), labels[picked])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
