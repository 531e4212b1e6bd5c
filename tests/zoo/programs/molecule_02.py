"""Tells soluble molecules from others with a graph network."""

from functools import lru_cache

import torch
from torch import nn

ATOMS, KINDS = 16, 9


@lru_cache(maxsize=None)
def propagation(bonds):
    """The bonds with loops, normalised on both sides as Kipf and Welling have it."""
    looped = bonds + torch.eye(bonds.shape[-1])
    scale = looped.sum(-1).rsqrt()
    return scale[:, :, None] * looped * scale[:, None]


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, atoms, bonds):
        return atoms + torch.relu(self.norm(propagation(bonds) @ self.linear(atoms)))


class Solubility(nn.Module):
    def __init__(self, width=128, depth=8):
        super().__init__()
        self.kinds = nn.Embedding(KINDS, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, kinds, bonds):
        atoms = self.kinds(kinds)
        for layer in self.layers:
            atoms = layer(atoms, bonds)
        return self.out(atoms.mean(1)).squeeze(1)


class Molecules:
    def __init__(self, count=2000, seed=61):
        generator = torch.Generator().manual_seed(seed)
        self.kinds = torch.randint(0, KINDS, (count, ATOMS), generator=generator)
        joined = torch.rand(count, ATOMS, ATOMS, generator=generator) < 0.08
        joined = joined | joined.transpose(1, 2) | torch.eye(ATOMS, dtype=torch.bool).roll(1, 1)
        self.bonds = (joined | joined.transpose(1, 2)).float() * (1 - torch.eye(ATOMS))
        love = torch.randn(KINDS, generator=generator)[self.kinds]
        score = (love[:, :, None] * self.bonds * love[:, None]).sum((1, 2)) + 3 * love.sum(1)
        self.soluble = (score > score.median()).float()

    def batches(self, size, generator):
        for rows in torch.randperm(len(self.kinds), generator=generator).split(size):
            yield self.kinds[rows], self.bonds[rows], self.soluble[rows]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(61)
    data, model = Molecules(), Solubility()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
    generator = torch.Generator().manual_seed(2)
    step = 0
    for epoch in range(1, 14):
        right = 0
        for kinds, bonds, soluble in data.batches(16, generator):
            logits = model(kinds, bonds)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, soluble)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += ((logits > 0) == (soluble > 0.5)).sum().item()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)
        print(f"epoch {epoch} right {right / len(data.kinds):.3f}", flush=True)


if __name__ == "__main__":
    main()
