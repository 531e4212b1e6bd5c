"""Whale calls from hydrophones: two ranks, large effective batches from small pieces."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PIECES = 8
BINS, FRAMES, SPECIES = 64, 24, 12


class CallNet(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.embed = nn.Linear(BINS * FRAMES, width)
        self.middle = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.species = nn.Linear(width, SPECIES)

    def forward(self, spectra):
        hidden = F.gelu(self.embed(spectra.flatten(1)))
        hidden = self.norm(hidden + F.gelu(self.middle(hidden)))
        return self.species(hidden)


def hydrophone(rank, templates):
    generator = torch.Generator().manual_seed(100 + rank)
    while True:
        labels = torch.randint(0, SPECIES, (6,), generator=generator)
        noise = torch.randn(6, BINS, FRAMES, generator=generator)
        yield templates[labels] + 1.5 * noise, labels


def train_step(model, optimizer, source):
    total = 0.0
    optimizer.zero_grad()
    for _ in range(PIECES):
        spectra, labels = next(source)
        loss = F.cross_entropy(model(spectra), labels) / PIECES
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    return total


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    templates = torch.randn(SPECIES, BINS, FRAMES) * 0.08
    model = DistributedDataParallel(CallNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    source = hydrophone(rank, templates)
    for step in range(100_000):
        loss = train_step(model, optimizer, source)
        if step % 5 == 0:
            print(f"rank {rank} step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
