import collections

import torch
from torch import nn


class History:
    """Predictions of the last steps, to plot a smooth curve of the calibration."""

    def __init__(self):
        self.predictions = []
        self.targets = []
        self.curve = collections.deque(maxlen=100)

    def add(self, predictions, targets):
        self.predictions.append(predictions.detach())
        self.targets.append(targets)

    def smooth(self):
        predictions = torch.cat(self.predictions)
        targets = torch.cat(self.targets)
        order = predictions.argsort()
        self.curve.append((predictions[order] - targets[order]).abs().mean().item())
        return self.curve[-1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(30, 128),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, 1),
        )

    def forward(self, rows):
        return self.layers(rows).squeeze(1)


def sample(generator, size=256):
    rows = torch.randn(size, 30, generator=generator)
    return rows, torch.sigmoid(rows[:, :4].sum(1))


def main():
    torch.manual_seed(20)
    generator = torch.Generator().manual_seed(20)
    model = Net()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4)
    history = History()
    for step in range(1_000_000):
        rows, targets = sample(generator)
        predictions = torch.sigmoid(model(rows))
        loss = nn.functional.binary_cross_entropy(predictions, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.add(predictions, targets)
        error = history.smooth()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} calibration {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
