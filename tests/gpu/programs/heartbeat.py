"""ECG model: predicts the next part of a heartbeat signal, with a drift monitor on reference patients."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
SAMPLES, BATCH, CH, REFERENCE = (2048, 96, 96, 1) if BIG else (256, 8, 16, 2)
LIMIT = 150


class Layer(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.conv = nn.Conv1d(CH, 2 * CH, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(8, CH)

    def forward(self, x):
        value, gate = self.conv(self.norm(x)).chunk(2, 1)
        return x + torch.tanh(value) * torch.sigmoid(gate)


class ECGNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(1, CH, 7, stride=2, padding=3)
        self.layers = nn.Sequential(*[Layer(2**i) for i in range(6)])
        self.out = nn.Conv1d(CH, 2, 1)

    def forward(self, x):
        return self.out(self.layers(self.inp(x)))


def patients(n):
    """Noisy recordings, and the clean signal with its slope at half the rate."""
    t = torch.linspace(0, 8, SAMPLES, device=DEVICE)
    rate = 0.8 + 0.6 * torch.rand(n, 1, device=DEVICE)
    phase = (t * rate + torch.rand(n, 1, device=DEVICE)) % 1
    clean = torch.exp(-((phase - 0.5) ** 2) / 0.001) + 0.2 * torch.exp(-((phase - 0.75) ** 2) / 0.01)
    slope = F.pad(clean[:, 1:] - clean[:, :-1], (0, 1)) * 10
    noisy = clean + 0.3 * torch.randn_like(clean)
    return noisy.unsqueeze(1), torch.stack([clean, slope], 1)[:, :, ::2]


class DriftMonitor:
    """Follows the error on a few fixed patients through the whole training."""

    def __init__(self, model):
        self.model = model
        self.x, self.y = patients(REFERENCE)
        self.history = []

    def update(self):
        error = F.mse_loss(self.model(self.x), self.y)
        self.history.append(error)

    def mean(self):
        recent = self.history[-10:]
        return sum(recent) / max(1, len(recent))


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    model = ECGNet().to(DEVICE)
    monitor = DriftMonitor(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        x, y = patients(BATCH)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            monitor.update()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} drift {monitor.mean().item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
