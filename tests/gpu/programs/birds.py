"""Fine-tune a small ViT to 40 kinds of birds."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
SIZE, PATCH, DIM, LAYERS, BATCH = (96, 8, 384, 8, 96) if BIG else (32, 8, 48, 2, 8)
KINDS, LIMIT = 40, 150


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, 6, -1).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, DIM))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.patch = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.place = nn.Parameter(torch.randn((SIZE // PATCH) ** 2, DIM) * 0.02)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(x)).mean(1))


class Trainer:
    def __init__(self, model, lr):
        self.model = model.to(DEVICE)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)

    def step(self, x, y):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            logits = self.model(x)
        loss = F.cross_entropy(logits.float(), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss


def birds(plumage):
    y = torch.randint(0, KINDS, (BATCH,), device=DEVICE)
    x = plumage[y] + 1.2 * torch.randn(BATCH, 3, SIZE, SIZE, device=DEVICE)
    return x, y


def main():
    torch.manual_seed(0)
    model = ViT()
    trainer = Trainer(model, lr=2e-4)
    model.head = nn.Linear(DIM, KINDS, device=DEVICE)
    plumage = F.interpolate(torch.randn(KINDS, 3, 8, 8, device=DEVICE), size=(SIZE, SIZE))
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        loss = trainer.step(*birds(plumage))
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
