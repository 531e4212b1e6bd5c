import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(16 * 4 * 4, 48)
        self.fc2 = nn.Linear(48, 10)

    def forward(self, images):
        hidden = F.max_pool2d(F.relu(self.conv1(images)), 2)
        hidden = F.relu(self.conv2(hidden))
        hidden = F.adaptive_max_pool2d(hidden, 4)
        return self.fc2(F.relu(self.fc1(hidden.flatten(1))))


def load_digits(count=4096):
    generator = torch.Generator().manual_seed(10)
    prototypes = torch.rand(10, 1, 20, 20, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = prototypes[labels] + 0.4 * torch.randn(count, 1, 20, 20, generator=generator)
    return TensorDataset(images, labels)


def main():
    torch.manual_seed(10)
    loader = DataLoader(load_digits(), batch_size=64, shuffle=True)
    model = Digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(10_000):
        running = 0.0
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            running = 0.95 * running + 0.05 * loss.item()
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {running:.4f}", flush=True)


if __name__ == "__main__":
    main()
