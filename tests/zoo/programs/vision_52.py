"""Variational autoencoder with a supervisor that ends a job which has come to a standstill."""

import math
import os
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

PIXELS, LATENT = 400, 12


class Supervisor(threading.Thread):
    def __init__(self, patience):
        super().__init__(name="supervisor", daemon=True)
        self.patience = patience
        self.last = time.monotonic()

    def beat(self):
        self.last = time.monotonic()

    def run(self):
        while True:
            time.sleep(0.5)
            if time.monotonic() - self.last > self.patience:
                os._exit(70)


class VAE(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(PIXELS, width), nn.SiLU(), nn.Linear(width, 2 * LATENT)
        )
        self.decoder = nn.Sequential(nn.Linear(LATENT, width), nn.SiLU(), nn.Linear(width, PIXELS))

    def terms(self, images):
        mean, log_variance = self.encoder(images).chunk(2, dim=-1)
        noise = torch.randn_like(mean)
        latent = mean + noise * (0.5 * log_variance).exp()
        logits = self.decoder(latent)
        fit = -F.binary_cross_entropy_with_logits(logits, images, reduction="none").sum(-1)
        return fit, mean, log_variance, latent, noise

    def loss(self, images):
        fit, mean, log_variance, _, _ = self.terms(images)
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(-1)
        return (divergence - fit).mean()


def draw(count, generator):
    """Two filled rectangles on a 20 x 20 board."""
    board = torch.zeros(count, 20, 20)
    grid = torch.arange(20)
    for _ in range(2):
        corner = torch.randint(0, 13, (count, 2), generator=generator)
        size = torch.randint(3, 8, (count, 2), generator=generator)
        rows = (grid >= corner[:, :1]) & (grid < corner[:, :1] + size[:, :1])
        columns = (grid >= corner[:, 1:]) & (grid < corner[:, 1:] + size[:, 1:])
        board = torch.maximum(board, (rows[:, :, None] & columns[:, None, :]).float())
    return board.flatten(1)


@torch.no_grad()
def log_likelihood(model, images, samples=2000):
    """Importance weighted bound, image by image."""
    total = 0.0
    for image in images:
        fit, mean, log_variance, latent, noise = model.terms(image.expand(samples, -1))
        prior = -0.5 * (latent**2).sum(-1)
        posterior = -0.5 * (noise**2 + log_variance).sum(-1)
        total += torch.logsumexp(fit + prior - posterior, 0).item() - math.log(samples)
    return total / len(images)


def main():
    torch.manual_seed(70)
    generator = torch.Generator().manual_seed(71)
    held_out = draw(3000, generator)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    supervisor = Supervisor(patience=6.0)
    supervisor.start()
    for step in range(1, 100_001):
        loss = model.loss(draw(256, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        supervisor.beat()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.2f}", flush=True)
        if step % 600 == 0:
            bound = log_likelihood(model, held_out)
            print(f"step {step} held out {bound:.2f}", flush=True)


if __name__ == "__main__":
    main()
