"""Fault detection in seismic sections; a velocity inversion runs on the same device now and then."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
SIZE, BATCH, CH = (128, 32, 64) if BIG else (32, 4, 8)
INVERT_FROM, INVERT_EVERY, LIMIT = 200, 20, 150


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, CH, 5, padding=2)
        self.body = nn.ModuleList(nn.Conv2d(CH, CH, 3, padding=2**i, dilation=2**i) for i in range(5))
        self.norms = nn.ModuleList(nn.GroupNorm(8, CH) for _ in range(5))
        self.out = nn.Conv2d(CH, 1, 1)

    def forward(self, x):
        x = self.stem(x)
        for conv, norm in zip(self.body, self.norms):
            x = x + F.relu(conv(norm(x)))
        return self.out(x).squeeze(1)


def sections(n):
    """Layered ground, cut and shifted along a slanted fault."""
    u = torch.linspace(-1, 1, SIZE, device=DEVICE)
    depth, along = u.view(1, -1, 1), u.view(1, 1, -1)
    place, slant, throw, dip = torch.randn(4, n, 1, 1, device=DEVICE) * 0.3
    line = place + slant * depth
    shift = torch.where(along > line, throw, torch.zeros_like(throw))
    image = torch.sin(40 * (depth + shift) + 3 * dip * along)
    near = ((along - line).abs() < 0.06).float()
    return (image + 0.3 * torch.randn_like(image)).unsqueeze(1), near


class Inversion:
    """Stands for the vendor's inversion kernel: about 25 s of device time a call."""

    def __init__(self):
        self.stream = torch.cuda.Stream() if BIG else None
        if BIG:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(1000)
            begin.record()
            torch.cuda._sleep(50_000_000)
            end.record()
            end.synchronize()
            self.cycles = int(50_000_000 / begin.elapsed_time(end) * 25_000)

    def refresh(self):
        if not BIG:
            time.sleep(25)
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(self.cycles)
        torch.cuda.current_stream().wait_stream(self.stream)


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model, inversion = Detector().to(DEVICE), Inversion()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        image, near = sections(BATCH)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            logits = model(image)
        loss = F.binary_cross_entropy_with_logits(logits.float(), near)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step >= INVERT_FROM and step % INVERT_EVERY == 0:
            inversion.refresh()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
