"""Masked language model of protein sequences."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
DIM, LAYERS, HEADS, BATCH, LENGTH = (1024, 4, 16, 16, 256) if BIG else (64, 2, 4, 8, 32)
ACIDS, MASK, MOTIFS, LIMIT = 20, 20, 200, 150


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, DIM))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(DIM), nn.LayerNorm(DIM), Attention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ProteinModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.acid, self.place = nn.Embedding(ACIDS + 1, DIM), nn.Embedding(LENGTH, DIM)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, ACIDS)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.acid(ids) + self.place.weight)))


def proteins(motifs):
    """Chains of motifs of eight acids with point mutations; 15 % of the acids are hidden."""
    pick = torch.randint(0, MOTIFS, (BATCH, LENGTH // 8), device=DEVICE)
    chain = motifs[pick].view(BATCH, LENGTH)
    mutate = torch.rand(BATCH, LENGTH, device=DEVICE) < 0.03
    chain = torch.where(mutate, torch.randint(0, ACIDS, chain.shape, device=DEVICE), chain)
    hide = torch.rand(BATCH, LENGTH, device=DEVICE) < 0.15
    return torch.where(hide, MASK, chain), torch.where(hide, chain, -100)


def main():
    torch.manual_seed(0)
    motifs = torch.randint(0, ACIDS, (MOTIFS, 8), device=DEVICE)
    model = ProteinModel().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, total_iters=200)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        ids, answer = proteins(motifs)
        loss = F.cross_entropy(model(ids).view(-1, ACIDS), answer.view(-1), ignore_index=-100)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step < 200:
            warmup.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
