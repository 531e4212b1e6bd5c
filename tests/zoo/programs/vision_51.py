"""Denoising autoencoder trained in a thread of its own; the main thread only watches for the end."""

import signal
import threading

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Denoiser(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, channels, 3, stride=2, padding=1),
            nn.ELU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
            nn.ELU(),
        )
        self.up = nn.Sequential(
            nn.ConvTranspose2d(2 * channels, channels, 4, stride=2, padding=1),
            nn.ELU(),
            nn.ConvTranspose2d(channels, 1, 4, stride=2, padding=1),
        )

    def forward(self, images):
        return self.up(self.down(images))


def stripes(size, generator, side=32):
    angle = torch.rand(size, 1, 1, generator=generator) * 3.1416
    pitch = 0.3 + torch.rand(size, 1, 1, generator=generator)
    grid = torch.arange(side).float()
    phase = grid[None, None] * torch.cos(angle) + grid[None, :, None] * torch.sin(angle)
    return torch.sin(phase * pitch)[:, None]


class Training(threading.Thread):
    def __init__(self, limit):
        super().__init__(name="training", daemon=True)
        self.limit = limit
        self.finished = threading.Event()
        self.wish_to_end = threading.Event()
        self.failure = None

    def run(self):
        try:
            self.train()
        except BaseException as error:
            self.failure = error
        finally:
            self.finished.set()

    def train(self):
        torch.manual_seed(60)
        generator = torch.Generator().manual_seed(61)
        model = Denoiser()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
            optimizer, T_0=200, eta_min=1e-6
        )
        for step in range(self.limit):
            if self.wish_to_end.is_set():
                return
            clean = stripes(48, generator)
            noisy = clean + 0.7 * torch.randn(clean.shape, generator=generator)
            loss = F.mse_loss(model(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % 40 == 0:
                rate = schedule.get_last_lr()[0]
                print(f"step {step} loss {loss.item():.4f} rate {rate:.6f}", flush=True)


def main():
    training = Training(limit=1_000_000)
    signal.signal(signal.SIGTERM, lambda *_: training.wish_to_end.set())
    training.start()
    training.finished.wait()
    if training.failure is not None:
        raise training.failure


if __name__ == "__main__":
    main()
