"""Flower photos, stored compressed."""

import random
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, count=2000, size=40):
        self.size = size
        rng = random.Random(6)
        self.blobs = [zlib.compress(rng.randbytes(3 * size * size)) for _ in range(count)]

    def __len__(self):
        return len(self.blobs)

    def __getitem__(self, index):
        raw = zlib.decompress(self.blobs[index])
        pixels = [(value / 255.0 - 0.5) * 2.0 for value in raw]
        image = torch.tensor(pixels).view(3, self.size, self.size)
        if random.random() < 0.5:
            image = image.flip(2)
        label = index % 5
        image[label % 3] += 0.2 * label
        return image, label


class FlowerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = nn.Linear(16, 5)

    def forward(self, images):
        return self.classifier(self.features(images).flatten(1))


def main():
    torch.manual_seed(6)
    random.seed(6)
    loader = DataLoader(Photos(), batch_size=32, shuffle=True)
    model = FlowerNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    step = 0
    for epoch in range(1000):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
