"""Beta-VAE on lantern silhouettes with a regression head for the flame height."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = dict(size=32, latent=12, width=20, batch=48, lr=1e-3, beta=0.5, steps=100_000, seed=8)
VALID_EVERY, VALID_BATCHES = 50, 1


def lanterns(n, gen):
    size = CFG["size"]
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    w = 0.3 + 0.4 * torch.rand(n, 1, 1, generator=gen)
    h = 0.4 + 0.4 * torch.rand(n, 1, 1, generator=gen)
    flame = 0.1 + 0.5 * torch.rand(n, 1, 1, generator=gen)
    shell = torch.sigmoid(12 * (1 - (x / w).abs().pow(4) - (y / h).abs().pow(4)))
    light = torch.exp(-(x**2 + (y - 0.2) ** 2) / (0.15 * flame))
    img = (0.5 * shell + 0.5 * light * shell).clamp(0, 1)
    img = (img + 0.02 * torch.randn(n, size, size, generator=gen)).clamp(0, 1)
    return img.unsqueeze(1), flame.view(n)


class LanternVAE(nn.Module):
    def __init__(self, width, latent):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 4 * width, 3, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
        )
        flat = 4 * width * 16
        self.to_mu = nn.Linear(flat, latent)
        self.to_logvar = nn.Linear(flat, latent)
        self.from_z = nn.Linear(latent, flat)
        self.dec = nn.Sequential(
            nn.Unflatten(1, (4 * width, 4, 4)),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
        )
        self.flame = nn.Sequential(nn.Linear(latent, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h).clamp(-8, 8)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        return self.dec(self.from_z(z)), mu, logvar, self.flame(mu).squeeze(1)


def objective(model, batch):
    x, height = batch
    logits, mu, logvar, guess = model(x)
    recon = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2, 3)).mean()
    kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar).sum(1).mean()
    return recon + CFG["beta"] * kl + 50 * F.mse_loss(guess, height)


class Board:
    """Curves of the run; the best value decides about the early stop."""

    def __init__(self, patience):
        self.curves = {"train": [], "valid": []}
        self.patience = patience

    def add(self, name, value):
        self.curves[name].append(value)

    def should_stop(self):
        curve = self.curves["valid"]
        best = min(range(len(curve)), key=lambda i: curve[i])
        return len(curve) - best > self.patience


def validate(model, held_out):
    model.eval()
    total = sum(objective(model, batch) for batch in held_out) / len(held_out)
    model.train()
    return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(CFG["seed"])
    gen = torch.Generator().manual_seed(CFG["seed"])
    model = LanternVAE(CFG["width"], CFG["latent"])
    opt = torch.optim.Adam(model.parameters(), lr=CFG["lr"])
    held_out = [lanterns(CFG["batch"], gen) for _ in range(VALID_BATCHES)]
    board = Board(patience=500)
    ema = math.nan
    for step in range(1, CFG["steps"] + 1):
        loss = objective(model, lanterns(CFG["batch"], gen))
        opt.zero_grad()
        loss.backward()
        opt.step()
        value = loss.item()
        ema = value if math.isnan(ema) else 0.98 * ema + 0.02 * value
        if step % VALID_EVERY == 0:
            board.add("train", ema)
            board.add("valid", validate(model, held_out))
            print(f"step {step} train {ema:.2f} valid {board.curves['valid'][-1]:.2f}", flush=True)
            if board.should_stop():
                break


if __name__ == "__main__":
    main()
