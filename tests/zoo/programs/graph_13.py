"""Message passing on molecules; the molecules are plain objects, batched by hand."""

import gc
import random
from dataclasses import dataclass, field

import torch
import torch.nn as nn

torch.manual_seed(1)
torch.set_num_threads(1)

ELEMENTS = 8


@dataclass
class Atom:
    element: int
    charge: float
    neighbours: list = field(default_factory=list)


@dataclass
class Molecule:
    atoms: list
    target: float


def build(n, seed):
    rng = random.Random(seed)
    weight = [rng.uniform(-1, 1) for _ in range(ELEMENTS)]
    molecules = []
    for _ in range(n):
        atoms = [Atom(rng.randrange(ELEMENTS), rng.gauss(0, 1)) for _ in range(rng.randint(6, 14))]
        for k in range(1, len(atoms)):
            j = rng.randrange(k)
            atoms[k].neighbours.append(j)
            atoms[j].neighbours.append(k)
        target = sum(weight[a.element] * (1 + 0.3 * len(a.neighbours)) for a in atoms) / len(atoms)
        molecules.append(Molecule(atoms, target + rng.gauss(0, 0.02)))
    return molecules


def pack(molecules):
    element, charge, src, dst, owner = [], [], [], [], []
    for m, molecule in enumerate(molecules):
        base = len(element)
        for k, atom in enumerate(molecule.atoms):
            element.append(atom.element)
            charge.append(atom.charge)
            owner.append(m)
            for j in atom.neighbours:
                src.append(base + j)
                dst.append(base + k)
    as_long = [torch.tensor(v) for v in (element, src, dst, owner)]
    return as_long, torch.tensor(charge), torch.tensor([m.target for m in molecules])


class MessagePassing(nn.Module):
    def __init__(self, dim=64, rounds=3):
        super().__init__()
        self.embed = nn.Embedding(ELEMENTS, dim)
        self.charge = nn.Linear(1, dim)
        self.message = nn.ModuleList([nn.Linear(dim, dim) for _ in range(rounds)])
        self.update = nn.GRUCell(dim, dim)
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, element, src, dst, owner, charge, count):
        h = self.embed(element) + self.charge(charge.unsqueeze(1))
        for layer in self.message:
            inbox = torch.zeros_like(h).index_add(0, dst, layer(h)[src])
            h = self.update(inbox, h)
        pooled = torch.zeros(count, h.shape[1]).index_add(0, owner, h)
        size = torch.zeros(count).index_add(0, owner, torch.ones(len(owner)))
        return self.readout(pooled / size.unsqueeze(1)).squeeze(1)


def train():
    molecules = build(3000, seed=23)
    model = MessagePassing()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    rng = random.Random(24)
    step = 0
    while True:
        rng.shuffle(molecules)
        for start in range(0, len(molecules), 32):
            step += 1
            (element, src, dst, owner), charge, target = pack(molecules[start : start + 32])
            loss = nn.functional.mse_loss(
                model(element, src, dst, owner, charge, len(target)), target
            )
            opt.zero_grad()
            loss.backward()
            opt.step()
            del element, src, dst, owner, charge, target
            gc.collect()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    train()
