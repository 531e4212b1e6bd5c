"""Linear probe on a frozen backbone."""

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(
            nn.Conv2d(3, 24, 3, stride=2, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )

    def forward(self, images):
        return self.stages(images)


class Probe(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(192, classes)
        for parameter in self.backbone.parameters():
            parameter.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, images):
        with torch.no_grad():
            features = self.backbone(images)
        return self.head(features)


def leaves(generator, count=32):
    labels = torch.randint(0, 8, (count,), generator=generator)
    images = torch.randn(count, 3, 32, 32, generator=generator)
    images[:, 1] += (labels.view(-1, 1, 1) - 4) * 0.3
    return images, labels


def main():
    torch.manual_seed(38)
    generator = torch.Generator().manual_seed(38)
    model = Probe(Backbone(), classes=8)
    model.train()
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=3e-3)
    for step in range(1_000_000):
        images, labels = leaves(generator)
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            accuracy = (logits.argmax(1) == labels).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
