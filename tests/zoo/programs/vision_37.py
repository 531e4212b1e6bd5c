"""A small convolutional network, written in the manner of torch 0.2."""

import torch
import torch.nn.functional as F
from torch import nn, optim

torch.set_num_threads(1)
torch.manual_seed(17)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc = nn.Linear(16 * 9, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.view(x.size(0), -1))


def zero_gradients(net):
    for p in net.parameters():
        if p.grad is not None:
            p.grad.data.zero_()


def batch(size=48):
    """Bars: across, upright, or one of two diagonals."""
    y = torch.randint(0, 4, (size,))
    x = torch.randn(size, 1, 20, 20)
    diagonal = torch.eye(20)
    across = torch.zeros(20, 20).index_fill_(0, torch.tensor([9, 10]), 1.0)
    bars = torch.stack([across, across.t(), diagonal, diagonal.flip(1)])
    return x + 3 * bars[y].unsqueeze(1), y


def train():
    net = Net()
    optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for step in range(1_000_000):
        x, y = batch()
        zero_gradients(net)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.data.item():.4f}", flush=True)


if __name__ == "__main__":
    train()
