"""Water level forecast: 32 values ahead from the last 256, a residual MLP, compiled."""
import os
import shutil
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
BATCH, WIDTH, BLOCKS = (16384, 1024, 6) if BIG else (128, 64, 2)
PAST, AHEAD, LIMIT = 256, 32, 150


class Mix(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        nn.init.zeros_(self.down.weight)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(PAST, WIDTH)
        self.blocks = nn.Sequential(*[Mix(WIDTH) for _ in range(BLOCKS)])
        self.out = nn.Linear(WIDTH, AHEAD)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)))


def tides(n):
    """Sums of four tidal components with random phase and height, plus gauge noise."""
    t = torch.arange(PAST + AHEAD, device=DEVICE).float()
    speed = torch.tensor([0.051, 0.085, 0.131, 0.262], device=DEVICE) * (0.9 + 0.2 * torch.rand(n, 4, device=DEVICE))
    phase = 6.283 * torch.rand(n, 4, 1, device=DEVICE)
    height = 0.2 + torch.rand(n, 4, 1, device=DEVICE)
    level = (height * torch.sin(speed.unsqueeze(-1) * t + phase)).sum(1)
    level = level + 0.1 * torch.randn_like(level)
    return level[:, :PAST], level[:, PAST:]


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Forecaster().to(DEVICE)
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    fast = torch.compile(model, backend="inductor" if compiler else "aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 200) / (1 + s / 3000))
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        x, y = tides(BATCH)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            guess = fast(x)
        loss = F.mse_loss(guess.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
