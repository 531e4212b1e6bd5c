"""Metric learning of trajectories: two views of one item come close, views of others stay apart."""

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(90)

ITEMS, LENGTH, DIM, CALM = 5000, 40, 24, 300


def make_items(seed):
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(ITEMS, LENGTH, 2, generator=generator)
    drift = torch.randn(ITEMS, 1, 2, generator=generator)
    paths = (0.4 * steps + 0.3 * drift).cumsum(1)
    return paths / paths.std()


class Views:
    """Jittered views of an item; the jitter gets smaller as training goes on."""

    def __init__(self, items, seed):
        self.items = items
        self.generator = torch.Generator().manual_seed(seed)

    def jitter(self, step):
        return 0.5 * max(0.0, 1.0 - step / CALM)

    def batch(self, size, step):
        picks = torch.randperm(len(self.items), generator=self.generator)[:size]
        paths, amount = self.items[picks], self.jitter(step)
        first = paths + amount * torch.randn(paths.shape, generator=self.generator)
        second = paths + amount * torch.randn(paths.shape, generator=self.generator)
        return first, second


class PathEncoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.inlet = nn.Linear(2, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.attend = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, DIM))

    def forward(self, paths):
        hidden, _ = self.rnn(F.relu(self.inlet(paths)))
        weight = self.attend(hidden).softmax(1)
        return self.out((weight * hidden).sum(1))


def distance(left, right):
    return torch.sqrt(((left - right) ** 2).sum(-1))


def triplet_loss(first, second, margin=2.0):
    near = distance(first, second)
    far = distance(first, second.roll(1, dims=0))
    return near.mean() + F.relu(margin - far).mean()


def main():
    views = Views(make_items(91), 92)
    encoder = PathEncoder()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    for step in range(1_000_000):
        first, second = views.batch(48, step)
        loss = triplet_loss(encoder(first), encoder(second))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 5.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
