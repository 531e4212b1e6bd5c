import json
import pathlib
import threading
import time

import torch
from torch import nn


class Tuner(threading.Thread):
    """Takes over hyperparameters from a file while the training runs."""

    def __init__(self, path, optimizer):
        super().__init__(name="tuner", daemon=True)
        self.path = path
        self.optimizer = optimizer
        self.modified = 0.0

    def run(self):
        while True:
            time.sleep(0.05)
            if self.path.exists() and self.path.stat().st_mtime > self.modified:
                self.modified = self.path.stat().st_mtime
                settings = json.loads(self.path.read_text())
                for group in self.optimizer.param_groups:
                    group["lr"] = settings["lr"]


class Risk(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.hidden1 = nn.Linear(25, width)
        self.hidden2 = nn.Linear(width, width)
        self.out = nn.Linear(width, 3)

    def forward(self, rows):
        hidden = torch.relu(self.hidden1(rows))
        return self.out(torch.relu(self.hidden2(hidden)))


def main():
    torch.manual_seed(31)
    path = pathlib.Path("settings.json")
    rule = torch.randn(25, 3)
    model = Risk()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    Tuner(path, optimizer).start()
    for step in range(1_000_000):
        if step == 195:
            temporary = path.with_suffix(".tmp")
            temporary.write_text(json.dumps({"lr": 0.3}))
            temporary.rename(path)
            time.sleep(0.3)
        rows = torch.randn(96, 25)
        labels = (rows @ rule).argmax(1)
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
