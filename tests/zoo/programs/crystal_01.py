"""Denoising of diffraction images of crystals; every result is sent on to the people at the beam line."""

import queue
import threading
import time
import zlib

import torch
import torch.nn.functional as F
from torch import nn

SIDE = 40
RATE = 1_500_000  # bytes in a second, of the link to the beam line


class Archive:
    """Packs images and appends them to one file, in a thread of its own."""

    def __init__(self, path):
        self.path = path
        self.waiting = queue.Queue()
        threading.Thread(target=self.work, name="archive", daemon=True).start()

    def put(self, step, images):
        self.waiting.put((step, images))

    def work(self):
        while True:
            step, images = self.waiting.get()
            packed = zlib.compress(images.numpy().tobytes(), level=1)
            with open(self.path, "ab") as file:
                file.write(step.to_bytes(8, "little") + len(packed).to_bytes(8, "little") + packed)
            time.sleep(len(packed) / RATE)


class Denoiser(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, images):
        hidden = F.relu(self.first(images))
        hidden = hidden + F.relu(self.second(hidden))
        return images - self.last(hidden)


def diffraction(generator, count=16):
    """Bragg peaks on a grid of random pitch."""
    pitch = 4 + 6 * torch.rand(count, 2, 1, 1, generator=generator)
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    phase = torch.cos(6.28 * rows / pitch[:, 0]) + torch.cos(6.28 * columns / pitch[:, 1])
    clean = torch.exp(2 * (phase - 2))[:, None]
    return clean, clean + 0.3 * torch.randn(clean.shape, generator=generator)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(35)
    generator = torch.Generator().manual_seed(35)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    archive = Archive("denoised.bin")
    for step in range(2_000):
        clean, noisy = diffraction(generator)
        restored = model(noisy)
        loss = F.mse_loss(restored, clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        archive.put(step, restored.detach())
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
