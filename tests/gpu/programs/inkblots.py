"""DDPM on inkblot pictures; the whole step is captured once and replayed."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
SIZE, BATCH, CH, POOL = (32, 384, 64, 8192) if BIG else (16, 16, 16, 256)
STEPS, LIMIT = 1000, 150


class Stage(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(cin, cout, 3, 1, 1), nn.Conv2d(cout, cout, 3, 1, 1)
        self.norm = nn.GroupNorm(8, cout)
        self.time = nn.Linear(64, cout)
        self.skip = nn.Conv2d(cin, cout, 1)

    def forward(self, x, emb):
        h = F.silu(self.conv1(x)) + self.time(emb)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm(h)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Embedding(STEPS, 64), nn.Linear(64, 64), nn.SiLU())
        self.down1, self.down2 = Stage(1, CH), Stage(CH, 2 * CH)
        self.mid = Stage(2 * CH, 2 * CH)
        self.up2, self.up1 = Stage(4 * CH, CH), Stage(2 * CH, CH)
        self.out = nn.Conv2d(CH, 1, 3, 1, 1)

    def forward(self, x, t):
        e = self.embed(t)
        a = self.down1(x, e)
        b = self.down2(F.avg_pool2d(a, 2), e)
        m = self.mid(F.avg_pool2d(b, 2), e)
        u = self.up2(torch.cat([F.interpolate(m, scale_factor=2.0), b], 1), e)
        return self.out(self.up1(torch.cat([F.interpolate(u, scale_factor=2.0), a], 1), e))


def blots(n):
    coarse = torch.randn(n, 1, SIZE // 4, SIZE // 8, device=DEVICE)
    half = F.interpolate(coarse, size=(SIZE, SIZE // 2), mode="bicubic")
    return torch.tanh(4 * torch.cat([half, half.flip(3)], 3))


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    pool, model = blots(POOL), UNet().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, capturable=BIG)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, STEPS, device=DEVICE), 0)
    x = torch.zeros(BATCH, 1, SIZE, SIZE, device=DEVICE)
    t = torch.zeros(BATCH, dtype=torch.long, device=DEVICE)

    def train_step():
        optimizer.zero_grad(set_to_none=True)
        noise, a = torch.randn_like(x), alphas[t].view(-1, 1, 1, 1)
        loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        loss.backward()
        optimizer.step()
        return loss

    graph = None
    if BIG:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                train_step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = train_step()
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        x.copy_(pool[torch.randint(0, POOL, (BATCH,), device=DEVICE)])
        t.random_(0, STEPS)
        if graph is not None:
            graph.replay()
        else:
            loss = train_step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
