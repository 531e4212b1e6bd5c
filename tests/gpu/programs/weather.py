"""Temperature forecast for many stations with a transformer encoder."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
HOURS, BATCH, DIM, LAYERS = (168, 64, 512, 6) if BIG else (48, 8, 128, 4)
CHANNELS, AHEAD, LIMIT = 8, 12, 150
CONFIG = {"lr": 0.1, "betas": (0.9, 0.98), "weight_decay": 0.0}


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(CHANNELS, DIM)
        self.place = nn.Parameter(torch.randn(HOURS, DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(DIM, 8, 4 * DIM, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(DIM, AHEAD)

    def forward(self, x):
        return self.out(self.encoder(self.inp(x) + self.place)[:, -1])


def stations(n):
    """A daily and a weekly wave per channel; the first channel is the one to foresee."""
    t = torch.arange(HOURS + AHEAD, device=DEVICE).view(1, -1, 1)
    phase = 6.283 * torch.rand(2, n, 1, CHANNELS, device=DEVICE)
    height = torch.rand(2, n, 1, CHANNELS, device=DEVICE)
    x = height[0] * torch.sin(0.2618 * t + phase[0]) + height[1] * torch.sin(0.0374 * t + phase[1])
    x = x + 0.1 * torch.randn_like(x)
    return x[:, :HOURS], x[:, HOURS:, 0]


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Forecaster().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), **CONFIG)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        x, y = stations(BATCH)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            guess = model(x)
        loss = F.mse_loss(guess.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
