"""CNN on synthetic textures, with early stopping on the validation loss."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def textures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 6, (count,), generator=generator)
    grid = torch.arange(24).float()
    waves = torch.sin(grid.view(1, 1, -1) * (labels.view(-1, 1, 1) + 1) * 0.3)
    images = waves.expand(-1, 24, -1) + 0.7 * torch.randn(count, 24, 24, generator=generator)
    return TensorDataset(images.unsqueeze(1), labels)


class TextureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 5, padding=2)
        self.conv2 = nn.Conv2d(12, 24, 5, stride=2, padding=2)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(24, 6)

    def forward(self, images):
        hidden = torch.relu(self.conv2(torch.relu(self.conv1(images))))
        return self.out(self.drop(hidden.mean((2, 3))))


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    total = 0.0
    for images, labels in loader:
        total += criterion(model(images), labels).item() * len(labels)
    model.train()
    return total / len(loader.dataset)


def main():
    torch.manual_seed(13)
    train = DataLoader(textures(2000, 1), batch_size=32, shuffle=True)
    valid = DataLoader(textures(3000, 2), batch_size=64)
    model = TextureNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, best_state, step = float("inf"), None, 0
    for epoch in range(1000):
        for images, labels in train:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0:
                current = validate(model, valid, criterion)
                if current < best:
                    best, best_state = current, copy.deepcopy(model.state_dict())
                print(
                    f"epoch {epoch} step {step} train {loss.item():.3f} valid {current:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
