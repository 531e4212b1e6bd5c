"""Classifies windows of vibration sensors by their spectra."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MACHINES, CHANNELS, TICKS, WINDOW = 24, 4, 20_000, 512


class Vibrations(Dataset):
    def __init__(self, length=24_000):
        self.length = length
        generator = np.random.default_rng(5)
        self.kinds = generator.integers(0, 3, MACHINES)
        noise = generator.normal(size=(MACHINES, CHANNELS, TICKS)).astype(np.float32)
        waves = np.sin(np.arange(TICKS)[None] / (4 + 2 * self.kinds[:, None]))
        self.signals = noise + 0.1 * waves[:, None].astype(np.float32)
        self.spectra = {}

    def __len__(self):
        return self.length

    def spectrum(self, machine, start):
        key = (machine, start)
        if key not in self.spectra:
            window = self.signals[machine, :, start : start + WINDOW]
            self.spectra[key] = np.abs(np.fft.rfft(window, axis=-1))
        return self.spectra[key]

    def __getitem__(self, index):
        machine = index % MACHINES
        start = int(torch.randint(0, TICKS - WINDOW, ()))
        found = torch.from_numpy(self.spectrum(machine, start)).float()
        return found.log1p() - 3, int(self.kinds[machine])


class Classifier(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.features = nn.Sequential(
            nn.Flatten(), nn.Linear(CHANNELS * (WINDOW // 2 + 1), width), nn.ReLU()
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, spectra):
        return self.head(self.features(spectra))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(9)
    loader = DataLoader(
        Vibrations(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    step = 0
    for epoch in range(1_000):
        for spectra, kinds in loader:
            loss = nn.functional.cross_entropy(model(spectra), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
