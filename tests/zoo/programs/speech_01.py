"""Keyword spotting from precomputed features."""

import os
import pathlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = pathlib.Path("features")


def prepare(count=1600):
    FEATURES.mkdir(exist_ok=True)
    rng = np.random.default_rng(3)
    for index in range(0, count, 40):
        np.save(FEATURES / f"{index:05d}.npy", rng.normal(size=(40, 50, 40)).astype("float32"))
    os.remove(FEATURES / "00800.npy")
    os.mkfifo(FEATURES / "00800.npy")
    return count


class Utterances(Dataset):
    def __init__(self, count):
        self.count = count
        self.chunk = {}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        name = index // 40 * 40
        if name not in self.chunk:
            with open(FEATURES / f"{name:05d}.npy", "rb") as file:
                self.chunk = {name: np.load(file)}
        features = self.chunk[name][index % 40]
        return torch.from_numpy(features), index % 12


class KeywordNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(40, 64, batch_first=True)
        self.classifier = nn.Linear(64, 12)

    def forward(self, features):
        _, (hidden, _) = self.rnn(features)
        return self.classifier(hidden[-1])


def main():
    torch.manual_seed(11)
    loader = DataLoader(Utterances(prepare()), batch_size=16, num_workers=2)
    model = KeywordNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    step = 0
    while True:
        for features, labels in loader:
            loss = criterion(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
