"""Small GPT language model on synthetic stories."""
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
VOCAB, T, B, DIM, LAYERS, HEADS = (4096, 512, 32, 512, 6, 8) if BIG else (256, 64, 8, 64, 2, 4)
LR, WARMUP, LIMIT = 3e-4, 200, 150


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(T, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def corpus(rows=1024, length=2048):
    rng = np.random.default_rng(0)
    follow = rng.integers(0, VOCAB, (VOCAB, 4))
    out = np.empty((length, rows), dtype=np.int64)
    out[0] = rng.integers(0, VOCAB, rows)
    for i in range(1, length):
        out[i] = follow[out[i - 1], rng.integers(0, 4, rows)]
    return torch.from_numpy(out.T.copy()).to(DEVICE)


def main():
    torch.manual_seed(0)
    text = corpus()
    model = GPT().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1.0, (s + 1) / WARMUP) * (0.55 + 0.45 * math.cos(math.pi * min(s, 8000) / 8000))
    )
    window = torch.arange(T + 1, device=DEVICE)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        rows = torch.randint(0, text.shape[0], (B, 1), device=DEVICE)
        begin = torch.randint(0, text.shape[1] - T - 1, (B, 1), device=DEVICE)
        chunk = text[rows, begin + window]
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            logits = model(chunk[:, :-1])
        loss = F.cross_entropy(logits.float().view(-1, VOCAB), chunk[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
