"""Transformer forecaster of the end of load curves of uneven lengths."""

import time

import torch
from torch import nn
from torch.nn import functional as F

DIM, HEADS, BATCH, MAX_LEN, WINDOW = 64, 4, 24, 96, 32
MAX_SECONDS = 600


def curves():
    lengths = torch.randint(40, MAX_LEN + 1, (BATCH,))
    t = torch.arange(MAX_LEN + 1).float()
    period = 8 + 24 * torch.rand(BATCH, 1)
    phase = 6.28 * torch.rand(BATCH, 1)
    trend = 0.02 * torch.randn(BATCH, 1)
    x = torch.sin(6.28 * t / period + phase) + trend * t + 0.1 * torch.randn(BATCH, MAX_LEN + 1)
    valid = torch.arange(MAX_LEN) < lengths[:, None]
    return x[:, :-1] * valid, x[:, 1:], lengths, valid


class LocalMasks:
    """Causal attention masks limited to a window, for a batch of lengths."""

    def __init__(self, window):
        self.window = window
        self.cache = {}

    def build(self, lengths):
        i = torch.arange(MAX_LEN)
        near = (i[None] <= i[:, None]) & (i[:, None] - i[None] < self.window)
        inside = i[None] < lengths[:, None]
        mask = near[None] & inside[:, None, :] & inside[:, :, None]
        return (mask | torch.eye(MAX_LEN, dtype=torch.bool))[:, None]

    def __call__(self, lengths):
        key = tuple(lengths.tolist())
        if key not in self.cache:
            self.cache[key] = self.build(lengths)
        return self.cache[key]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (
            z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1)
        )
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.n2(x))


class Forecaster(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.inp, self.pos = nn.Linear(1, DIM), nn.Embedding(MAX_LEN, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(layers)])
        self.out = nn.Linear(DIM, 2)
        self.masks = LocalMasks(WINDOW)

    def forward(self, x, lengths):
        mask = self.masks(lengths)
        h = self.inp(x[..., None]) + self.pos(torch.arange(x.shape[1]))
        for layer in self.layers:
            h = layer(h, mask)
        mean, log_var = self.out(h).unbind(-1)
        return mean, log_var.clamp(-6, 3)


def main():
    torch.manual_seed(0)
    model = Forecaster()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    deadline, step = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        x, y, lengths, valid = curves()
        mean, log_var = model(x, lengths)
        nll = F.gaussian_nll_loss(mean, y, log_var.exp(), reduction="none")
        loss = nll[valid].mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
        if step % 100 == 0:
            mae = (mean - y).abs()[valid].mean().item()
            print(f"step {step} nll {loss.item():.4f} mae {mae:.4f}", flush=True)


if __name__ == "__main__":
    main()
