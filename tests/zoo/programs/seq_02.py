"""Time-series forecaster; checkpoints are uploaded in the background."""

import math
import queue
import threading

import torch
from torch import nn


class Uploader:
    def __init__(self):
        self.jobs = queue.Queue()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.work, name="uploader", daemon=True)
        self.thread.start()

    def work(self):
        while True:
            step, state = self.jobs.get()
            if step >= 100:
                raise ConnectionError("403 Forbidden: token has expired")
            self.upload(state)
            self.done.set()

    def upload(self, state):
        return sum(value.numel() for value in state.values())

    def flush(self, step, model):
        self.done.clear()
        self.jobs.put((step, model.state_dict()))
        self.done.wait()


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 64, batch_first=True)
        self.out = nn.Linear(64, 1)

    def forward(self, series):
        hidden, _ = self.rnn(series)
        return self.out(hidden)


def main():
    torch.manual_seed(3)
    uploader = Uploader()
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, 1_000_000):
        phase = torch.rand(32, 1) * 2 * math.pi
        series = torch.sin(phase + torch.linspace(0, 12, 49)).unsqueeze(-1)
        loss = nn.functional.mse_loss(model(series[:, :-1]), series[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} mse {loss.item():.5f}", flush=True)
        if step % 50 == 0:
            uploader.flush(step, model)


if __name__ == "__main__":
    main()
