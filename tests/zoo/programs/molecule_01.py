"""Predicts the energy of molecules from their atoms and who is near whom."""

import torch
from torch import nn

ATOMS, KINDS, NEAR = 30, 8, 1.1


class Passing(nn.Module):
    """Each atom hears of its neighbours."""

    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.own = nn.Linear(width, width)

    def forward(self, atoms, near):
        heard = near @ self.message(atoms)
        return torch.relu(self.own(atoms) + heard)


class Energy(nn.Module):
    def __init__(self, width=64, depth=6):
        super().__init__()
        self.kinds = nn.Embedding(KINDS, width)
        self.layers = nn.ModuleList(Passing(width) for _ in range(depth))
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, kinds, near):
        atoms = self.kinds(kinds)
        for layer in self.layers:
            atoms = layer(atoms, near)
        return self.out(atoms.mean(1)).squeeze(1)


def molecules(count=1500):
    generator = torch.Generator().manual_seed(13)
    kinds = torch.randint(0, KINDS, (count, ATOMS), generator=generator)
    places = 0.7 * torch.randn(count, ATOMS, 3, generator=generator)
    near = (torch.cdist(places, places) < NEAR).float()
    near = near * (1 - torch.eye(ATOMS))
    charges = torch.randn(KINDS, generator=generator)[kinds]
    energy = (charges[:, :, None] * near * charges[:, None]).sum((1, 2)) + 5 * charges.sum(1)
    return kinds, near, (energy - energy.mean()) / energy.std()


def epochs(data, generator, size=32):
    while True:
        for rows in torch.randperm(len(data[0]), generator=generator).split(size):
            yield [part[rows] for part in data]


def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        kinds, near, energy = data
        error = nn.functional.l1_loss(model(kinds, near), energy).item()
    model.train()
    return error


def main():
    torch.set_num_threads(1)
    torch.manual_seed(13)
    data = molecules()
    held, trained = [part[:200] for part in data], [part[200:] for part in data]
    model = Energy()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = epochs(trained, torch.Generator().manual_seed(1))
    for step in range(1, 1_000_000):
        kinds, near, energy = next(batches)
        loss = nn.functional.mse_loss(model(kinds, near), energy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % 200 == 0:
            print(f"held out: error {evaluate(model, held):.3f}", flush=True)


if __name__ == "__main__":
    main()
