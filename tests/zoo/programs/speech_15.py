"""Keyword spotting on raw waveforms kept in packed int16 shards."""

import contextlib
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RATE, WORDS, SHARDS, CLIPS = 4000, 10, 8, 136
RECORD = RATE * 2 + 2


def write_shards(folder):
    rng = np.random.default_rng(3)
    t = np.arange(RATE) / RATE
    paths = []
    for s in range(SHARDS):
        path = folder / f"clips_{s:02d}.bin"
        with path.open("wb") as f:
            for _ in range(CLIPS):
                word = int(rng.integers(WORDS))
                pitch = 180 * (1 + 0.12 * word) * rng.uniform(0.97, 1.03)
                wave = np.sin(2 * np.pi * pitch * t * (1 + 0.1 * (word % 3) * t))
                wave *= np.exp(-((t - rng.uniform(0.35, 0.65)) ** 2) / 0.03)
                wave = 9000 * wave + rng.normal(0, 3000, RATE)
                f.write(np.uint16(word).tobytes() + wave.astype(np.int16).tobytes())
        paths.append(path)
    return paths


class Corpus:
    def __init__(self, paths, batch, seed=0):
        self.paths = list(paths)
        self.batch = batch
        self.rng = np.random.default_rng(seed)
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stack.close()

    def epoch(self):
        """One pass in random order over all shards, reading record by record."""
        files = [self.stack.enter_context(open(p, "rb")) for p in self.paths]
        order = [(f, i) for f in files for i in range(CLIPS)]
        self.rng.shuffle(order)
        for lo in range(0, len(order) - self.batch + 1, self.batch):
            waves, words = [], []
            for f, i in order[lo : lo + self.batch]:
                f.seek(i * RECORD)
                raw = np.frombuffer(f.read(RECORD), dtype=np.int16)
                words.append(int(raw[0]))
                waves.append(np.roll(raw[1:], self.rng.integers(-200, 200)))
            x = torch.from_numpy(np.stack(waves)).float().div_(32768.0)
            yield x.unsqueeze(1), torch.tensor(words)


class Spotter(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.front = nn.Conv1d(1, width, 64, stride=8, padding=32)
        self.body = nn.ModuleList(
            [nn.Conv1d(width, width, 9, stride=2, padding=4) for _ in range(4)]
        )
        self.norms = nn.ModuleList([nn.BatchNorm1d(width) for _ in range(4)])
        self.out = nn.Linear(width, WORDS)

    def forward(self, x):
        h = torch.log1p(self.front(x * 4).abs())
        for conv, norm in zip(self.body, self.norms):
            h = F.relu(norm(conv(h)))
        return self.out(h.mean(-1))


def run(corpus, epochs):
    model = Spotter()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    step = 0
    for epoch in range(epochs):
        hits = seen = 0
        for x, y in corpus.epoch():
            logits = model(x)
            loss = F.cross_entropy(logits, y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            hits += (logits.argmax(1) == y).sum().item()
            seen += len(y)
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f} acc {hits / seen:.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    root = Path("shards")
    root.mkdir(exist_ok=True)
    with Corpus(write_shards(root), batch=16) as corpus:
        run(corpus, epochs=1000)
