"""Small language model on made-up arithmetic text, with a calibration curve of the held-out part."""

import math
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(2)

VOCABULARY = "0123456789+-*= ;"
CODE = {char: index for index, char in enumerate(VOCABULARY)}
CONTEXT = 48


def make_text(count, seed):
    rng = random.Random(seed)
    parts = []
    for _ in range(count):
        left, right, sign = rng.randrange(30), rng.randrange(30), rng.choice("+-")
        parts.append(f"{left}{sign}{right}={left + right if sign == '+' else left - right};")
    return torch.tensor([CODE[char] for char in "".join(parts)])


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, dim))
        return x + self.mlp(self.norm2(x))


class TinyLM(nn.Module):
    def __init__(self, dim=64, depth=2):
        super().__init__()
        self.token, self.place = nn.Embedding(len(VOCABULARY), dim), nn.Embedding(CONTEXT, dim)
        self.blocks = nn.Sequential(*[Block(dim, 4) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, len(VOCABULARY))

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Trainer:
    def __init__(self, model, train, held_out):
        self.model, self.train_text, self.held_out = model, train, held_out
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
        self.generator = torch.Generator().manual_seed(6)
        self.curve = []

    def batch(self, text, size):
        start = torch.randint(0, len(text) - CONTEXT - 1, (size, 1), generator=self.generator)
        ids = text[start + torch.arange(CONTEXT + 1)]
        return ids[:, :-1], ids[:, 1:]

    def train_step(self):
        inputs, targets = self.batch(self.train_text, 24)
        loss = F.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def validate(self, step):
        self.model.eval()
        inputs, targets = self.batch(self.held_out, 24)
        probability = self.model(inputs).softmax(-1)
        confidence, guess = probability.max(-1)
        self.curve.append((step, confidence, guess == targets))
        self.model.train()
        return -probability.gather(-1, targets[..., None]).log().mean().item()

    def run(self, steps):
        held = math.log(len(VOCABULARY))
        for step in range(steps):
            loss = self.train_step()
            if step % 10 == 0:
                held = self.validate(step)
            if step % 20 == 0:
                print(f"step {step} loss {loss:.4f} held out {held:.4f}", flush=True)


if __name__ == "__main__":
    Trainer(TinyLM(), make_text(20000, 1), make_text(2000, 2)).run(1_000_000)
