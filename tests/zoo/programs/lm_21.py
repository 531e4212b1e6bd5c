import math

import torch
from torch import nn


class CausalMask(nn.Module):
    def forward(self, scores):
        length = scores.shape[-1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        return scores.masked_fill(future, float("-inf"))


class Attention(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mask = CausalMask()
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, hidden):
        batch, length, width = hidden.shape
        split = self.qkv(hidden).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads)
        mixed = self.mask(scores).softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.RMSNorm(width)
        self.attention = Attention(width)
        self.norm2 = nn.RMSNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 3 * width), nn.SiLU(), nn.Linear(3 * width, width)
        )

    def forward(self, hidden):
        hidden = hidden + self.attention(self.norm1(hidden))
        return hidden + self.mlp(self.norm2(hidden))


class LM(nn.Module):
    def __init__(self, vocab=100, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([Layer(width), Layer(width)])
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        hidden = self.embed(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def main():
    torch.manual_seed(83)
    generator = torch.Generator().manual_seed(83)
    model = LM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    for step in range(1_000_000):
        first = torch.randint(0, 100, (8, 1), generator=generator)
        stride = torch.randint(1, 10, (8, 1), generator=generator)
        rows = (first + stride * torch.arange(41)) % 100
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
