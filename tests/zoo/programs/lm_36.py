"""Continued pre-training of a small causal language model on a new domain."""

import math
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, LAYERS, HEADS, CONTEXT, BATCH = 256, 128, 3, 4, 64, 16
DTYPE = torch.bfloat16
MAX_SECONDS = 600


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.n2(x))


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Markov:
    """Text of a random sparse Markov chain; the domain sets the chain."""

    def __init__(self, domain):
        g = torch.Generator().manual_seed(domain)
        self.next = torch.randint(VOCAB, (VOCAB, 8), generator=g)
        self.weight = torch.softmax(2 * torch.randn(VOCAB, 8, generator=g), -1)

    def batch(self, n=BATCH):
        ids = torch.empty(n, CONTEXT + 1, dtype=torch.long)
        ids[:, 0] = torch.randint(VOCAB, (n,))
        for t in range(CONTEXT):
            pick = torch.multinomial(self.weight[ids[:, t]], 1)
            ids[:, t + 1] = self.next[ids[:, t]].gather(1, pick).squeeze(1)
        return ids[:, :-1], ids[:, 1:]


def loss_of(model, batch):
    x, y = batch
    return F.cross_entropy(model(x).float().flatten(0, 1), y.flatten())


def pretrain(model, corpus, steps=150):
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        loss = loss_of(model, corpus.batch())
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = CausalLM()
    print(f"base checkpoint loss {pretrain(model, Markov(1)):.3f}", flush=True)
    model = model.to(DTYPE)
    corpus = Markov(2)
    held_out = corpus.batch(64)
    peak, warmup, total = 4e-5, 100, 5000
    opt = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: (
            min(1, (s + 1) / warmup) * (0.55 + 0.45 * math.cos(math.pi * min(s, total) / total))
        ),
    )
    deadline, step = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        loss = loss_of(model, corpus.batch())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        step += 1
        if step % 100 == 0:
            with torch.no_grad():
                val = loss_of(model, held_out).item()
            print(
                f"step {step} loss {loss.item():.3f} held-out {val:.3f} lr {sched.get_last_lr()[0]:.2e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
