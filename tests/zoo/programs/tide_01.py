"""Forecast of sea level at 96 gauges, with a journal of residuals and a watchdog for slow steps."""

import json
import lzma
import signal
import threading
import time

import numpy as np
import torch
from torch import nn

GAUGES, CONTEXT = 96, 48
SLOW = 0.5  # seconds


class Journal:
    """Notes and residuals of the run; the web page of the institute reads them from a thread."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.notes, self.residuals = [], []

    def note(self, text):
        with self.lock:
            self.notes.append((time.time(), text))

    def keep(self, residual):
        with self.lock:
            self.residuals.append(residual)

    def latest(self):
        with self.lock:
            return self.notes[-5:], self.residuals[-1:]

    def write(self):
        with self.lock:
            packed = lzma.compress(np.stack(self.residuals).tobytes(), preset=6)
            with open(self.path, "ab") as file:
                file.write(json.dumps(self.notes).encode() + b"\n" + packed)
            self.notes.clear()
            self.residuals.clear()


class TideNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.rnn = nn.GRU(GAUGES, width, batch_first=True)
        self.out = nn.Linear(width, GAUGES)

    def forward(self, levels):
        states, _ = self.rnn(levels)
        return levels[:, -1] + self.out(states[:, -1])


def serve(journal, stop):
    while not stop.wait(2.0):
        journal.latest()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(31)
    rng = np.random.default_rng(31)
    hours = np.arange(20_000)[:, None]
    phase = rng.uniform(0, 6.28, (1, GAUGES))
    series = np.sin(hours / 12.42 * 6.28 + phase) + 0.3 * np.sin(hours / 12 * 6.28 + 2 * phase)
    series = torch.from_numpy(series + 0.1 * rng.normal(size=series.shape)).float()
    journal = Journal("residuals.xz")
    signal.signal(signal.SIGALRM, lambda signum, frame: journal.note("slow"))
    threading.Thread(target=serve, args=(journal, threading.Event()), daemon=True).start()
    model = TideNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    windows = series.unfold(0, CONTEXT + 1, 1).transpose(1, 2)
    for step in range(1, 100_000):
        signal.setitimer(signal.ITIMER_REAL, SLOW)
        pick = torch.randint(0, len(windows), (64,))
        window = windows[pick]
        forecast = model(window[:, :-1])
        loss = nn.functional.mse_loss(forecast, window[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        journal.keep((window[:, -1] - forecast.detach()).double().numpy())
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 120 == 0:
            journal.write()


if __name__ == "__main__":
    main()
