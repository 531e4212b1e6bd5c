"""Load forecast with a dilated causal net; the weights are mirrored into a plain buffer for a reader."""

import ctypes
import itertools

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)

libc = ctypes.CDLL(None)
HISTORY, HORIZON, STATIONS = 96, 12, 40


def make_load(length=6000):
    rng = np.random.default_rng(2)
    hours = np.arange(length)
    level = rng.uniform(1, 3, (STATIONS, 1))
    daily = np.sin(2 * np.pi * (hours + rng.integers(0, 24, (STATIONS, 1))) / 24)
    weekly = 0.5 * np.sin(2 * np.pi * (hours + rng.integers(0, 168, (STATIONS, 1))) / 168)
    noise = np.cumsum(rng.normal(size=(STATIONS, length)), axis=1)
    noise = noise - np.apply_along_axis(
        lambda row: np.convolve(row, np.ones(48) / 48, "same"), 1, noise
    )
    return torch.tensor(level * (daily + weekly) + 0.2 * noise, dtype=torch.float32)


class CausalBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.gate = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        value, gate = self.gate(F.pad(x, (self.pad, 0))).chunk(2, dim=1)
        return x + self.mix(torch.tanh(value) * torch.sigmoid(gate))


class Forecaster(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inlet = nn.Conv1d(1, width, 1)
        self.blocks = nn.Sequential(*[CausalBlock(width, 2**level) for level in range(5)])
        self.outlet = nn.Linear(width, HORIZON)

    def forward(self, past):
        hidden = self.blocks(self.inlet(past[:, None]))
        return self.outlet(hidden[:, :, -1])


class Mirror:
    """A flat copy of the weights at a fixed address, for the process that serves forecasts."""

    def __init__(self, model):
        self.model = model
        self.size = sum(parameter.numel() for parameter in model.parameters())
        self.buffer = torch.zeros(self.size)

    def publish(self):
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in self.model.parameters()])
        libc.memcpy(self.buffer.data_ptr(), flat.data_ptr(), 4 * self.size)


def sample(load, generator, batch=32):
    station = torch.randint(0, STATIONS, (batch,), generator=generator)
    start = torch.randint(0, load.shape[1] - HISTORY - HORIZON, (batch,), generator=generator)
    window = start[:, None] + torch.arange(HISTORY + HORIZON)
    rows = load[station[:, None], window]
    return rows[:, :HISTORY], rows[:, HISTORY:]


def main():
    load = make_load()
    generator = torch.Generator().manual_seed(5)
    model = Forecaster()
    mirror = Mirror(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in itertools.count(1):
        past, future = sample(load, generator)
        loss = F.mse_loss(model(past), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} mse {loss.item():.4f}", flush=True)
        if step % 300 == 0:
            mirror.publish()


if __name__ == "__main__":
    main()
