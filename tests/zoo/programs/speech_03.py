import pathlib
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

ROOTS = ["data/disk0", "data/disk1", "data/nfs0"]


class RemoteFile:
    """Reads in blocks, as the client of our object store does."""

    def __init__(self, path, latency):
        self.path = pathlib.Path(path)
        self.latency = latency

    def read(self):
        blocks = []
        with open(self.path, "rb") as file:
            while block := file.read(1024):
                time.sleep(self.latency)
                blocks.append(block)
        return b"".join(blocks)


class Clips(Dataset):
    def __init__(self, count=480, samples=4000):
        self.count = count
        self.opened = 0
        for root in ROOTS:
            pathlib.Path(root).mkdir(parents=True, exist_ok=True)
            (pathlib.Path(root) / "clips.raw").write_bytes(bytes(range(250)) * (samples // 250))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        root = ROOTS[get_worker_info().id]
        self.opened += 1
        latency = 0.015 if "nfs" in root and self.opened > 160 else 0.0
        raw = RemoteFile(f"{root}/clips.raw", latency).read()
        wave = torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() / 128 - 1
        label = index % 8
        return wave.roll(index) * (0.2 + 0.1 * label), label


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 80, stride=8)
        self.conv2 = nn.Conv1d(16, 32, 3, stride=2)
        self.out = nn.Linear(32, 8)

    def forward(self, wave):
        hidden = torch.relu(self.conv1(wave.unsqueeze(1)))
        return self.out(torch.relu(self.conv2(hidden)).mean(2))


def main():
    torch.manual_seed(0)
    loader = DataLoader(Clips(), batch_size=8, num_workers=3, persistent_workers=True)
    model = WaveNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(1000):
        for wave, labels in loader:
            loss = nn.functional.cross_entropy(model(wave), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
