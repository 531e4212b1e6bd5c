import os

import torch
import torch.distributed as dist
from torch import nn


class PointNet(nn.Module):
    def __init__(self, width=64, classes=4):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))
        self.whole = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, points):
        return self.whole(self.local(points).amax(1))


def clouds(generator, count=32):
    labels = torch.randint(0, 4, (count,), generator=generator)
    points = torch.randn(count, 64, 3, generator=generator)
    points[:, :, 2] *= 0.3 + 0.5 * labels.view(-1, 1)
    return points, labels


def sync_gradients(model, size):
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    dist.all_reduce(flat)
    flat /= size
    start = 0
    for parameter in model.parameters():
        parameter.grad.copy_(flat[start : start + parameter.numel()].view_as(parameter))
        start += parameter.numel()


def main():
    dist.init_process_group("gloo")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(1000 + rank)
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1_000_000):
        points, labels = clouds(generator)
        loss = nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        sync_gradients(model, size)
        optimizer.step()
        if step % 20 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
