"""Price regression with a background writer for metrics."""

import threading
import time

import torch
from torch import nn


class Checkpoints:
    def __init__(self):
        self.lock = threading.Lock()
        self.latest = None

    def save(self, model, step, metrics):
        with self.lock:
            state = {name: value.clone() for name, value in model.state_dict().items()}
            time.sleep(0.5)
            with metrics.lock:
                self.latest = (step, state, list(metrics.values))


class MetricsWriter(threading.Thread):
    def __init__(self, checkpoints):
        super().__init__(name="metrics", daemon=True)
        self.lock = threading.Lock()
        self.values = []
        self.checkpoints = checkpoints

    def add(self, value):
        with self.lock:
            self.values.append(value)

    def run(self):
        while True:
            time.sleep(0.2)
            self.report()

    def report(self):
        with self.lock:
            recent = self.values[-50:]
            with self.checkpoints.lock:
                latest = self.checkpoints.latest
        if recent and latest:
            print(f"saved {latest[0]} mean {sum(recent) / len(recent):.4f}", flush=True)


def main():
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Linear(24, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    weights = torch.randn(24, 1)
    checkpoints = Checkpoints()
    metrics = MetricsWriter(checkpoints)
    metrics.start()
    for step in range(1, 1_000_000):
        features = torch.randn(512, 24)
        prices = features @ weights + 0.1 * torch.randn(512, 1)
        loss = nn.functional.mse_loss(model(features), prices)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics.add(loss.item())
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 150 == 0:
            checkpoints.save(model, step, metrics)


if __name__ == "__main__":
    main()
