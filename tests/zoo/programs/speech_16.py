"""Keyword spotting from waveforms; the normalisation follows the data while training goes on."""

import threading

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(50)

RATE, WORDS, CLIPS = 2000, 6, 1600


class Clips(Dataset):
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, WORDS, CLIPS)
        time = np.arange(RATE) / RATE
        pitch = 60 + 55 * self.labels[:, None] + rng.normal(0, 6, (CLIPS, 1))
        loud = rng.uniform(0.3, 2.0, (CLIPS, 1))
        self.waves = loud * np.sin(2 * np.pi * pitch * time) + rng.normal(0, 2.5, (CLIPS, RATE))
        self.lock = threading.Lock()
        self.mean, self.scale = 0.0, 1.0

    def __len__(self):
        return CLIPS

    def __getitem__(self, index):
        with self.lock:
            mean, scale = self.mean, self.scale
        wave = (self.waves[index] - mean) / scale
        return torch.tensor(wave, dtype=torch.float32), int(self.labels[index])

    def refresh_statistics(self):
        """Trimmed mean and scale, bootstrapped over the clips."""
        rng = np.random.default_rng(0)
        with self.lock:
            means, scales = [], []
            for _ in range(60):
                part = np.sort(self.waves[rng.choice(CLIPS, 400)], axis=1)[
                    :, RATE // 50 : -RATE // 50
                ]
                means.append(part.mean())
                scales.append(part.std())
            self.mean, self.scale = float(np.mean(means)), float(np.mean(scales))


class SpotNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, width, 64, stride=8),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, stride=2),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * width, WORDS)

    def forward(self, waves):
        return self.head(self.features(waves[:, None]).amax(-1))


def evaluate(model, clips):
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor(clips.waves[:800], dtype=torch.float32))
    model.train()
    return float((logits.argmax(1).numpy() == clips.labels[:800]).mean())


def main():
    train, held_out = Clips(1), Clips(2)
    loader = DataLoader(
        train,
        batch_size=32,
        shuffle=True,
        num_workers=2,
        generator=torch.Generator().manual_seed(3),
    )
    model = SpotNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    step = 0
    for epoch in range(1, 10_000):
        for waves, words in loader:
            loss = F.cross_entropy(model(waves), words)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"step {step} epoch {epoch} loss {loss.item():.4f}", flush=True)
        if epoch % 5 == 0:
            threading.Thread(
                target=train.refresh_statistics, name="statistics", daemon=True
            ).start()
        print(f"step {step} epoch {epoch} right {evaluate(model, held_out):.3f}", flush=True)


if __name__ == "__main__":
    main()
