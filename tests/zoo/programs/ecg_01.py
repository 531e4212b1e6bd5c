"""Arrhythmia in ECG strips: strips are streamed from shards by two workers."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

KINDS, SAMPLES = 5, 360


class Strips(IterableDataset):
    """Streams the strips of all shards in a new order in each epoch, with light noise added."""

    def __init__(self, shards, seed):
        self.shards, self.seed, self.epoch = shards, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        rng = np.random.default_rng((self.seed, self.epoch))
        for shard in rng.permutation(len(self.shards)):
            signals, kinds = self.shards[shard]
            for row in rng.permutation(len(kinds)):
                noise = rng.normal(0, 0.1, SAMPLES)
                yield (signals[row] + noise).astype(np.float32)[None], int(kinds[row])


def make_shards(count, rows, seed=7):
    rng = np.random.default_rng(seed)
    ticks = np.arange(SAMPLES)
    shards = []
    for _ in range(count):
        kinds = rng.integers(0, KINDS, rows)
        rate = 55 + 14 * kinds + rng.normal(0, 2, rows)
        phase = (ticks * rate[:, None] / 360 / 2.5 / 20 + rng.random((rows, 1))) % 1
        beats = np.exp(-(((phase - 0.5) / 0.05) ** 2)) + 0.2 * np.exp(-(((phase - 0.7) / 0.1) ** 2))
        shards.append((beats + 0.3 * rng.normal(size=beats.shape), kinds))
    return shards


class StripNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 15, stride=3, padding=7)
        self.deep = nn.Conv1d(width, width, 9, stride=2, padding=4)
        self.norm = nn.BatchNorm1d(width)
        self.rnn = nn.GRU(width, 32, batch_first=True)
        self.kind = nn.Linear(32, KINDS)

    def forward(self, strips):
        hidden = self.norm(F.relu(self.deep(F.relu(self.stem(strips)))))
        states, _ = self.rnn(hidden.transpose(1, 2))
        return self.kind(states.mean(1))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    strips = Strips(make_shards(12, 600), seed=7)
    loader = DataLoader(strips, batch_size=32, num_workers=2, drop_last=True)
    model = StripNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(1_000):
        strips.set_epoch(epoch)
        for signals, kinds in loader:
            loss = F.cross_entropy(model(signals), kinds)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
