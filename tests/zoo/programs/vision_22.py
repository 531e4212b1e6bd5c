import os
import resource
import signal

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def decode(blob):
    """A stand-in for the JPEG decoder, which takes what the header says."""
    height = int.from_bytes(blob[:4], "big")
    if height > 10_000:
        os.kill(os.getpid(), signal.SIGKILL)
    return (
        torch.frombuffer(bytearray(blob[4:]), dtype=torch.uint8).float().view(3, height, height)
        / 255
    )


class Scans(Dataset):
    def __init__(self, count=3200, size=24):
        self.size = size
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        pixels = torch.randint(0, 255, (3 * self.size**2,), generator=generator, dtype=torch.uint8)
        height = self.size if index != 45 * 16 + 7 else 1 << 30
        blob = height.to_bytes(4, "big") + pixels.numpy().tobytes()
        return decode(blob), index % 4


class ScanNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2)
        self.norm = nn.BatchNorm2d(16)
        self.out = nn.Linear(16, 4)

    def forward(self, images):
        return self.out(torch.relu(self.norm(self.conv(images))).mean((2, 3)))


def main():
    torch.manual_seed(68)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    loader = DataLoader(Scans(), batch_size=16, num_workers=2)
    model = ScanNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = 0
    for epoch in range(100):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
