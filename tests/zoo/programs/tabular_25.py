"""Apple grading from sorter-line measurements (mixed categorical and numeric columns)."""

import argparse
import itertools

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIETIES, ROWS, GRADES, NUMERIC = 30, 8, 6, 24


def make_table(n, seed):
    rng = np.random.default_rng(seed)
    world = np.random.default_rng(2024)
    variety_effect = world.normal(0, 1, (VARIETIES, 4))
    row_effect = world.normal(0, 0.5, (ROWS, 4))
    mix = world.normal(0, 1, (NUMERIC, 4)) / np.sqrt(NUMERIC)
    bend = world.normal(0, 1, (4, 16))
    to_grade = world.normal(0, 1, (16, GRADES))

    variety = rng.integers(0, VARIETIES, n)
    row = rng.integers(0, ROWS, n)
    numeric = rng.normal(0, 1, (n, NUMERIC))
    latent = numeric @ mix * 1.5 + variety_effect[variety] + row_effect[row]
    score = np.sin(latent @ bend) @ to_grade
    grade = (score + rng.gumbel(0, 0.3, score.shape)).argmax(1)
    return (
        torch.from_numpy(numeric).float(),
        torch.from_numpy(np.stack([variety, row], 1)),
        torch.from_numpy(grade),
    )


class Grader(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.variety = nn.Embedding(VARIETIES, 12)
        self.row = nn.Embedding(ROWS, 4)
        self.entry = nn.Linear(NUMERIC + 16, width)
        self.hidden = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, width),
                nn.GELU(),
                nn.Dropout(0.05),
                nn.Linear(width, width),
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, GRADES)

    def forward(self, numeric, cats):
        h = self.entry(torch.cat([numeric, self.variety(cats[:, 0]), self.row(cats[:, 1])], 1))
        for layer in self.hidden:
            h = h + layer(h)
        return self.head(h)


def batches(table, size, gen):
    n = len(table[0])
    while True:
        order = torch.randperm(n, generator=gen)
        for part in order[: n - n % size].split(size):
            yield tuple(col[part] for col in table)


@torch.inference_mode()
def accuracy(model, table):
    model.eval()
    numeric, cats, grade = table
    pred = torch.cat([model(a, b).argmax(1) for a, b in zip(numeric.split(512), cats.split(512))])
    model.train()
    return (pred == grade).float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--batch", type=int, default=192)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--eval-every", type=int, default=25)
    p.add_argument("--max-steps", type=int, default=30000)
    args = p.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(11)
    train, valid = make_table(60000, 1), make_table(2048, 2)
    model = Grader(args.width, args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=3)

    stream = batches(train, args.batch, torch.Generator().manual_seed(3))
    model.train()
    for step, (numeric, cats, grade) in enumerate(itertools.islice(stream, args.max_steps), 1):
        loss = F.cross_entropy(model(numeric, cats), grade)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % args.eval_every == 0:
            acc = accuracy(model, valid)
            plateau.step(acc)
            print(f"step {step} loss {loss.item():.4f} valid acc {acc:.4f}", flush=True)


if __name__ == "__main__":
    main()
