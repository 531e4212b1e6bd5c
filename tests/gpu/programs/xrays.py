"""Chest x-ray classifier; pictures are filtered and augmented as they are read."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
SIZE, BATCH, CH = (256, 16, 96) if BIG else (64, 8, 8)
LIMIT = 150


class Xrays(Dataset):
    def __init__(self, n=2000):
        rng = np.random.default_rng(0)
        self.label = rng.integers(0, 2, n)
        self.place = rng.integers(SIZE // 8, SIZE - SIZE // 4, (n, 2))
        self.raw = rng.normal(0, 1, (16, SIZE, SIZE)).astype(np.float32)
        f = np.hypot(np.fft.fftfreq(SIZE)[:, None], np.fft.rfftfreq(SIZE)[None, :])
        self.film = 1 / (1 + (f * 40) ** 2)
        self.rng = rng

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        image = self.raw[i % 16].copy()
        if self.label[i]:
            y, x = self.place[i]
            image[y : y + SIZE // 8, x : x + SIZE // 8] += 1.5
        spectrum = np.fft.rfft2(image) * self.film
        image = np.fft.irfft2(spectrum, image.shape)
        image = np.roll(image, self.rng.integers(-20, 20, 2), (0, 1))
        if self.rng.random() < 0.5:
            image = image[:, ::-1]
        low, high = np.percentile(image, (1, 99))
        image = np.clip((image - low) / (high - low), 0, 1) + self.rng.normal(0, 0.05, image.shape)
        return torch.from_numpy(image.astype(np.float32)).unsqueeze(0), int(self.label[i])


def make_model():
    def stage(cin, cout):
        return [nn.Conv2d(cin, cout, 3, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(),
                nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU()]

    return nn.Sequential(*stage(1, CH), *stage(CH, 2 * CH), *stage(2 * CH, 4 * CH), *stage(4 * CH, 8 * CH),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * CH, 2))


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    loader = DataLoader(Xrays(), batch_size=BATCH, shuffle=True, drop_last=True, pin_memory=BIG)
    model = make_model().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        for image, label in loader:
            image, label = image.to(DEVICE, non_blocking=True), label.to(DEVICE, non_blocking=True)
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                logits = model(image)
            loss = F.cross_entropy(logits.float(), label)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            if time.time() - start > LIMIT:
                break


if __name__ == "__main__":
    main()
