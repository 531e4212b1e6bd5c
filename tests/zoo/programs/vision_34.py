"""Stochastic weight averaging with renewed batch norm statistics."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset


def cells(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    images = torch.rand(count, 1, 20, 20, generator=generator)
    size = labels + 2
    for row in range(count):
        top, left = torch.randint(0, 12, (2,), generator=generator).tolist()
        images[row, 0, top : top + size[row], left : left + size[row]] += 0.8
    return TensorDataset(images, labels)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 4),
    )


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader)
    model.train()
    return hits / len(loader.dataset)


def main(average_every=100):
    torch.manual_seed(96)
    train = DataLoader(cells(1600, 96), batch_size=32, shuffle=True)
    valid = DataLoader(cells(320, 97), batch_size=64)
    model = build()
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = SWALR(optimizer, swa_lr=0.01, anneal_epochs=5)
    step = 0
    for epoch in range(10_000):
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            if step % average_every == 0:
                averaged.update_parameters(model)
                update_bn(train, averaged)
                print(f"averaged accuracy {accuracy(averaged, valid):.3f}", flush=True)
        scheduler.step()


if __name__ == "__main__":
    main()
