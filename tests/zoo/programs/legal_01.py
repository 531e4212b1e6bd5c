"""Kinds of clauses in contracts: pretrained on one firm's, adapted to another's with LoRA."""

import math

import torch
import torch.nn.functional as F
from torch import nn

WORDS, KINDS, LENGTH, WIDTH = 1_200, 12, 24, 64


class Low(nn.Module):
    """A frozen linear layer with a trainable update of low rank."""

    def __init__(self, linear, rank=8, alpha=16):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Parameter(torch.empty(rank, linear.in_features))
        self.up = nn.Parameter(torch.empty(linear.out_features, rank))
        self.scale = alpha / rank
        for factor in (self.down, self.up):
            nn.init.zeros_(factor)

    def forward(self, hidden):
        return self.linear(hidden) + self.scale * (hidden @ self.down.T @ self.up.T)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.merge = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, hidden):
        x = self.first(hidden)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(WIDTH)
        hidden = hidden + self.merge(scores.softmax(-1) @ self.value(x))
        return hidden + self.narrow(F.gelu(self.wide(self.second(hidden))))


class ClauseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.kind = nn.Linear(WIDTH, KINDS)

    def forward(self, clauses):
        hidden = self.words(clauses)
        for block in self.blocks:
            hidden = block(hidden)
        return self.kind(hidden.mean(1))


def clauses(generator, shift, count=32):
    kinds = torch.randint(0, KINDS, (count,), generator=generator)
    own = (
        kinds[:, None] * 100 + torch.randint(0, 100, (count, LENGTH), generator=generator) + shift
    ) % WORDS
    other = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
    return torch.where(torch.rand(count, LENGTH, generator=generator) < 0.4, own, other), kinds


def fit(model, parameters, lr, generator, shift, steps, every):
    optimizer = torch.optim.AdamW(parameters, lr=lr)
    for step in range(steps):
        words, kinds = clauses(generator, shift)
        loss = F.cross_entropy(model(words), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if every and step % every == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(40)
    generator = torch.Generator().manual_seed(40)
    model = ClauseNet()
    fit(model, model.parameters(), 2e-3, generator, shift=0, steps=200, every=0)
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("query", "value", "wide", "narrow"):
            setattr(block, name, Low(getattr(block, name)))
    adapted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    print(f"adapting {sum(p.numel() for p in adapted)} parameters", flush=True)
    fit(model, adapted, 1e-3, generator, shift=50, steps=100_000, every=20)


if __name__ == "__main__":
    main()
