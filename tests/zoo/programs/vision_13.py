import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (count,), generator=generator)
    images = torch.randn(count, 3, 20, 20, generator=generator)
    images[:, :, :4, :4] += labels.view(-1, 1, 1, 1) * 0.4
    return TensorDataset(images, labels)


def build():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(1600, 5),
    )


def validate(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images).argmax(1) == labels).sum().item()
    return correct / len(loader.dataset)


def main():
    torch.manual_seed(90)
    train_loader = DataLoader(make_data(2400, 90), batch_size=24, shuffle=True)
    valid_loader = DataLoader(make_data(240, 91), batch_size=48)
    model = build()
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(10_000):
        for images, labels in train_loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} accuracy {validate(model, valid_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
