"""Forecasts the traffic at forty counters for the next hour."""

import collections
import math
import threading

import torch
from torch import nn

COUNTERS, PAST, AHEAD = 40, 24, 4


class Monitor(threading.Thread):
    """Smooths what the training reports, apart from the training."""

    def __init__(self, share=0.05):
        super().__init__(name="monitor", daemon=True)
        self.share = share
        self.values = collections.deque()
        self.means = {}
        self.closed = False

    def report(self, name, value):
        self.values.append((name, value))

    def run(self):
        while not self.closed:
            if self.values:
                name, value = self.values.popleft()
                mean = self.means.get(name, value)
                self.means[name] = mean + self.share * (value - mean)


class Forecast(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.places = nn.Parameter(0.1 * torch.randn(COUNTERS, 8))
        self.past = nn.GRU(1 + 8, width, batch_first=True)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, AHEAD))

    def forward(self, counts, counters):
        places = self.places[counters][:, None].expand(-1, PAST, -1)
        _, last = self.past(torch.cat([counts[:, :, None], places], dim=2))
        return self.out(last[0])


def history(days=30):
    generator = torch.Generator().manual_seed(77)
    hours = torch.arange(0, 24 * days, 0.25)
    rush = torch.exp(-((hours % 24 - 8) ** 2) / 6) + torch.exp(-((hours % 24 - 17) ** 2) / 8)
    size = 0.5 + torch.rand(COUNTERS, 1, generator=generator)
    shift = torch.sin(hours / 24 * 2 * math.pi + 6 * torch.rand(COUNTERS, 1, generator=generator))
    counts = size * rush + 0.3 * shift
    counts = counts + 0.05 * torch.randn(counts.shape, generator=generator)
    return (counts - counts.mean()) / counts.std()


def windows(counts, count, generator):
    counters = torch.randint(0, COUNTERS, (count,), generator=generator)
    starts = torch.randint(0, counts.shape[1] - PAST - AHEAD, (count,), generator=generator)
    places = starts[:, None] + torch.arange(PAST + AHEAD)
    rows = counts[counters[:, None], places]
    return rows[:, :PAST], rows[:, PAST:], counters


def main():
    torch.set_num_threads(1)
    torch.manual_seed(12)
    counts = history()
    generator = torch.Generator().manual_seed(1)
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    monitor = Monitor()
    monitor.start()
    for step in range(1, 1_000_000):
        past, ahead, counters = windows(counts, 64, generator)
        loss = nn.functional.smooth_l1_loss(model(past, counters), ahead)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        monitor.report("loss", loss.item())
        monitor.report("norm", norm.item())
        if step % 20 == 0:
            print(f"step {step} loss {monitor.means.get('loss', 0.0):.4f}", flush=True)


if __name__ == "__main__":
    main()
