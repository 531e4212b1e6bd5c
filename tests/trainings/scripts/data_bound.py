"""A training that waits for its data: two workers, each sample takes long to read."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import Truth, planned


class SlowImages(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(0.012)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(256, generator=generator), index % 10


def main():
    torch.manual_seed(37)
    model = nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    truth = Truth(model=model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(SlowImages(), batch_size=16, num_workers=2))
    for step in range(planned(14)):
        with truth.timed("data"):
            x, y = next(batches)
        with truth.timed("forward"):
            out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])
    truth.finish(model)


if __name__ == "__main__":
    main()
