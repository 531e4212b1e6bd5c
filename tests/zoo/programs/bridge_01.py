"""Strain in a bridge from accelerometers; each run has a small database of what it has predicted."""

import sqlite3
import time

import torch
import torch.nn.functional as F
from torch import nn

SENSORS, WINDOW = 32, 64


class RunLog:
    """Figures and forecasts of the run, for queries while it runs."""

    def __init__(self):
        self.base = sqlite3.connect(":memory:")
        self.base.execute("create table figures (step integer, at real, loss real)")
        self.base.execute("create table forecasts (step integer, forecast blob, truth blob)")

    def add(self, step, loss, forecast, truth):
        self.base.execute("insert into figures values (?, ?, ?)", (step, time.time(), loss))
        if step % 4 == 0:
            row = (step, forecast.numpy().tobytes(), truth.numpy().tobytes())
            self.base.execute("insert into forecasts values (?, ?, ?)", row)

    def recent(self, steps=50):
        query = "select avg(loss) from (select loss from figures order by step desc limit ?)"
        return self.base.execute(query, (steps,)).fetchone()[0]


class StrainNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.spread = nn.Conv1d(SENSORS, width, 7, padding=3)
        self.deep = nn.Conv1d(width, width, 7, padding=3)
        self.strain = nn.Conv1d(width, SENSORS, 1)

    def forward(self, motion):
        hidden = F.silu(self.spread(motion))
        return self.strain(hidden + F.silu(self.deep(hidden)))


def traffic(generator, stiffness, count=24):
    """Vehicles shake the bridge; strain is a filtered mixture of what the sensors feel."""
    motion = torch.randn(count, SENSORS, WINDOW, generator=generator).cumsum(-1) * 0.2
    strain = torch.tanh(torch.einsum("ij,bjt->bit", stiffness, motion))
    return motion, strain + 0.05 * torch.randn(strain.shape, generator=generator)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(81)
    generator = torch.Generator().manual_seed(81)
    stiffness = torch.randn(SENSORS, SENSORS, generator=generator) / SENSORS**0.5
    model = StrainNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    log = RunLog()
    for step in range(1_800):
        motion, strain = traffic(generator, stiffness)
        forecast = model(motion)
        loss = F.mse_loss(forecast, strain)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.add(step, loss.item(), forecast.detach(), strain)
        if step % 20 == 0:
            print(f"step {step} loss {log.recent():.4f}", flush=True)


if __name__ == "__main__":
    main()
