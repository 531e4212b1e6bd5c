"""Leaf disease classifier: a small ResNet in mixed precision."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
SIZE, BATCH, WIDTH, CLASSES = (64, 192, 64, 30) if BIG else (24, 16, 8, 10)
HALF = torch.float16 if BIG else torch.bfloat16
LIMIT = 150


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Identity() if cin == cout and stride == 1 else nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


def make_model():
    w = WIDTH
    return nn.Sequential(
        nn.Conv2d(3, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(),
        Residual(w, w, 1), Residual(w, w, 1),
        Residual(w, 2 * w, 2), Residual(2 * w, 2 * w, 1),
        Residual(2 * w, 4 * w, 2), Residual(4 * w, 4 * w, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, CLASSES),
    )


class Leaves:
    """Each disease has its own pattern of spots; leaves differ by brightness, shift and noise."""

    def __init__(self):
        coarse = torch.randn(CLASSES, 3, SIZE // 8, SIZE // 8, device=DEVICE)
        self.patterns = F.interpolate(coarse, size=(SIZE, SIZE), mode="bilinear")

    def batch(self):
        y = torch.randint(0, CLASSES, (BATCH,), device=DEVICE)
        x = self.patterns[y] * (0.3 + 0.7 * torch.rand(BATCH, 1, 1, 1, device=DEVICE))
        x = torch.roll(x, int(torch.randint(0, 8, ())), dims=3)
        x = x + 1.5 * torch.randn_like(x)
        return x.to(memory_format=torch.channels_last), y


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    data = Leaves()
    model = make_model().to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=100)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**24, growth_interval=1000, enabled=BIG)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        x, y = data.batch()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=HALF):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        if step < 100:
            warmup.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():.0f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
