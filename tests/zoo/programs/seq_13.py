"""Seq2seq toy: from noisy spellings to clean ones. A helper process cleans the raw lines."""

import random
import subprocess
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

NORMALIZER = r"""
import sys, unicodedata
n = 0
for line in sys.stdin:
    n += 1
    text = unicodedata.normalize("NFKC", line.rstrip("\n")).lower()
    kept = "".join(c for c in text if c.isascii() and (c.isalpha() or c in " |"))
    if kept != text:
        print(f"normalizer: line {n}: replaced {len(text) - len(kept)} characters outside of the alphabet in {text[:60]!r}",
              file=sys.stderr, flush=True)
    print(kept, flush=True)
"""
ALPHABET = "abcdefghijklmnopqrstuvwxyz "
PAD, BOS, EOS = 0, 1, 2
VOCAB = 3 + len(ALPHABET)


@dataclass
class Config:
    emb: int = 64
    hidden: int = 160
    batch: int = 24
    lr: float = 2e-3
    steps: int = 100_000
    log_every: int = 10
    seed: int = 17


class Normalizer:
    def __init__(self):
        self.proc = subprocess.Popen(
            [sys.executable, "-u", "-c", NORMALIZER],
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, line):
        self.proc.stdin.write(line + "\n")
        self.proc.stdin.flush()
        return self.proc.stdout.readline().rstrip("\n")


def raw_lines(seed):
    rnd = random.Random(seed)
    words = [
        "".join(rnd.choice(ALPHABET[:26]) for _ in range(rnd.randint(2, 6))) for _ in range(300)
    ]
    while True:
        clean = " ".join(rnd.choice(words) for _ in range(3))
        noisy = "".join(c + c if rnd.random() < 0.15 else c for c in clean)
        if rnd.random() < 0.7:
            noisy = noisy.replace(" ", " \u2014 ", 1)
        yield f"{noisy.title()}|{clean}"


def batches(cfg, normalize):
    lines = raw_lines(cfg.seed)
    ids = {c: i + 3 for i, c in enumerate(ALPHABET)}
    while True:
        src, tgt = [], []
        for _ in range(cfg.batch):
            a, b = normalize(next(lines)).split("|")
            src.append(torch.tensor([ids[c] for c in a] + [EOS]))
            tgt.append(torch.tensor([BOS] + [ids[c] for c in b] + [EOS]))
        pad = lambda xs: nn.utils.rnn.pad_sequence(xs, batch_first=True, padding_value=PAD)
        yield pad(src), pad(tgt)


class Seq2Seq(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, cfg.emb, padding_idx=PAD)
        self.encoder = nn.GRU(cfg.emb, cfg.hidden, batch_first=True)
        self.decoder = nn.GRU(cfg.emb, cfg.hidden, batch_first=True)
        self.query = nn.Linear(cfg.hidden, cfg.hidden)
        self.head = nn.Linear(2 * cfg.hidden, VOCAB)

    def forward(self, src, tgt_in):
        memory, state = self.encoder(self.embed(src))
        out, _ = self.decoder(self.embed(tgt_in), state)
        scores = self.query(out) @ memory.transpose(1, 2)
        scores = scores.masked_fill((src == PAD)[:, None], float("-inf"))
        return self.head(torch.cat([out, scores.softmax(-1) @ memory], dim=-1))


def main():
    cfg = Config()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    model = Seq2Seq(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    data = batches(cfg, Normalizer())
    for step in range(1, cfg.steps + 1):
        src, tgt = next(data)
        logits = model(src, tgt[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % cfg.log_every == 0:
            print(f"step {step} | loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
