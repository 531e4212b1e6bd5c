"""Name generator (GRU over characters); a small script outside scores what it invents."""

import itertools
import random
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(12)

LETTERS = ".abcdefghijklmnopqrstuvwxyz"
SCORER = """
import sys
for name in open(0).read().split():
    vowels = sum(letter in 'aeiou' for letter in name)
    print(name, len(name), vowels, round(vowels / max(1, len(name)), 3), 'ok' if vowels else 'odd')
"""


def make_names(count, seed):
    rng = random.Random(seed)
    starts, ends = (
        ["ka", "lo", "mi", "tes", "bran", "el", "dor"],
        ["na", "rin", "do", "th", "la", "wyn", "mar"],
    )
    middles = ["", "ri", "va", "len", "o", "sha"]
    return [
        rng.choice(starts) + rng.choice(middles) + rng.choice(middles) + rng.choice(ends)
        for _ in range(count)
    ]


def encode(names, length=16):
    rows = torch.zeros(len(names), length, dtype=torch.long)
    for row, name in enumerate(names):
        rows[row, 1 : len(name) + 1] = torch.tensor([LETTERS.index(letter) for letter in name])
    return rows


class Generator(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 24)
        self.gru = nn.GRU(24, width, batch_first=True)
        self.out = nn.Linear(width, len(LETTERS))

    def forward(self, ids, state=None):
        hidden, state = self.gru(self.letters(ids), state)
        return self.out(hidden), state

    @torch.no_grad()
    def invent(self, count, length=14):
        ids, state, columns = torch.zeros(count, 1, dtype=torch.long), None, []
        for _ in range(length):
            logits, state = self(ids, state)
            ids = torch.multinomial(logits[:, -1].softmax(-1), 1)
            columns.append(ids)
        rows = torch.cat(columns, dim=1).tolist()
        return ["".join(LETTERS[index] for index in row).split(".")[0] for row in rows]


class Judge:
    """Scores all names invented so far."""

    def __init__(self):
        self.names = []

    def score(self, names):
        self.names.extend(name for name in names if name)
        process = subprocess.Popen(
            [sys.executable, "-c", SCORER], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        process.stdin.write("\n".join(self.names))
        process.stdin.close()
        if process.wait() != 0:
            raise RuntimeError("the scorer failed")
        lines = process.stdout.read().splitlines()
        process.stdout.close()
        return sum(line.endswith("ok") for line in lines) / len(lines)


def main():
    data = encode(make_names(4000, 7))
    model, judge = Generator(), Judge()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    picker = torch.Generator().manual_seed(1)
    share = 0.0
    for step in itertools.count(1):
        rows = data[torch.randint(0, len(data), (64,), generator=picker)]
        logits, _ = model(rows[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} fine {share:.2f}", flush=True)
        if step % 100 == 0:
            share = judge.score(model.invent(400))


if __name__ == "__main__":
    main()
