"""Fine-tune a small backbone on a new set of classes."""

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, classes=100):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(128, classes)

    def forward(self, images):
        return self.classifier(self.features(images))


def pretrained():
    torch.manual_seed(0)
    return Backbone()


def birds(generator, count=32):
    labels = torch.randint(0, 7, (count,), generator=generator)
    images = torch.randn(count, 3, 32, 32, generator=generator)
    images[:, 1] += labels.view(-1, 1, 1) * 0.25
    return images, labels


def main():
    model = pretrained()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 1000)
    model.classifier = nn.Linear(128, 7)
    generator = torch.Generator().manual_seed(44)
    correct = seen = 0
    for step in range(1_000_000):
        images, labels = birds(generator)
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        correct += (logits.argmax(1) == labels).sum().item()
        seen += len(labels)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} accuracy {correct / seen:.3f}", flush=True)


if __name__ == "__main__":
    main()
