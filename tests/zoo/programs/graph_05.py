"""Molecule property regression with a graph network on dense adjacency."""

import torch
from torch import nn


class Bonds(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.update = nn.GRUCell(width, width)

    def forward(self, atoms, adjacency):
        batch, count, width = atoms.shape
        messages = adjacency @ torch.relu(self.message(atoms))
        return self.update(messages.reshape(-1, width), atoms.reshape(-1, width)).view_as(atoms)


class MoleculeNet(nn.Module):
    def __init__(self, kinds=9, width=48, rounds=3):
        super().__init__()
        self.atoms = nn.Embedding(kinds, width)
        self.bonds = Bonds(width)
        self.rounds = rounds
        self.readout = nn.Linear(width, 1)

    def forward(self, kinds, adjacency):
        atoms = self.atoms(kinds)
        for _ in range(self.rounds):
            atoms = self.bonds(atoms, adjacency)
        return self.readout(atoms.mean(1)).squeeze(1)


def molecules(generator, count=24, size=18):
    kinds = torch.randint(0, 9, (count, size), generator=generator)
    adjacency = (torch.rand(count, size, size, generator=generator) < 0.15).float()
    adjacency = ((adjacency + adjacency.transpose(1, 2)) > 0).float()
    energy = (adjacency.sum((1, 2)) * 0.02) + (kinds == 3).float().mean(1)
    return kinds, adjacency, energy


def main():
    torch.manual_seed(24)
    generator = torch.Generator().manual_seed(24)
    model = MoleculeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    running = torch.zeros(())
    for step in range(1, 1_000_000):
        kinds, adjacency, energy = molecules(generator)
        predicted = model(kinds, adjacency)
        loss = nn.functional.mse_loss(predicted, energy)
        penalty = predicted.pow(2).mean() * 1e-4
        if step % 20 == 0:
            running = 0.95 * running + 0.05 * (loss + penalty).log1p()
        optimizer.zero_grad()
        (loss + penalty).backward(retain_graph=True)
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {running.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
