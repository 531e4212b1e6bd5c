"""Character LM (pre-norm transformer); context length is raised in stages, as in short-first pretraining."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

STAGES = [(0, 32), (250, 64), (500, 96), (750, 128), (1000, 192)]


def corpus(chars=400_000, vocab=48, seed=6):
    """Words from a fixed lexicon, chosen by a first-order chain."""
    rng = np.random.default_rng(seed)
    lexicon = [rng.integers(1, vocab, size=rng.integers(2, 8)) for _ in range(400)]
    follow = rng.integers(0, 400, size=(400, 6))
    out, total, w = [], 0, 0
    while total < chars:
        out += [lexicon[w], np.zeros(1, dtype=np.int64)]
        total += len(lexicon[w]) + 1
        w = int(follow[w, rng.integers(0, 6)])
    return torch.from_numpy(np.concatenate(out)), vocab


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, n, d))
        return x + self.ff(self.n2(x))


class CharLM(nn.Module):
    def __init__(self, vocab, dim, layers, longest):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(longest, dim)
        self.layers = nn.ModuleList(Layer(dim, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)
        for m in (self.tok, self.pos):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def context_for(step):
    return [n for at, n in STAGES if step >= at][-1]


def sample(data, batch, n, g):
    at = torch.randint(len(data) - n - 1, (batch, 1), generator=g)
    rows = data[at + torch.arange(n + 1)]
    return rows[:, :-1], rows[:, 1:]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--dim", type=int, default=96)
    ap.add_argument("--layers", type=int, default=3)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--steps", type=int, default=50_000)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(6)
    g = torch.Generator().manual_seed(6)
    data, vocab = corpus()
    model = CharLM(vocab, args.dim, args.layers, STAGES[-1][1])
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.05)
    mark, tokens = time.time(), 0
    for step in range(args.steps):
        for group in opt.param_groups:
            group["lr"] = args.lr * min(1.0, (step + 1) / 150)
        n = context_for(step)
        x, y = sample(data, args.batch, n, g)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        tokens += x.numel()
        if (step + 1) % 50 == 0:
            rate = tokens / (time.time() - mark)
            print(
                f"step {step + 1} context {n} loss {loss.item():.3f} tok/s {rate:.0f}", flush=True
            )
            mark, tokens = time.time(), 0


if __name__ == "__main__":
    main()
