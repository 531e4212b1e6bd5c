"""VAE on small drawings, data parallel by hand: gradients are averaged over the ranks."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

SIDE, LATENT = 24, 12


def drawings(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    cx, cy = (torch.rand(2, n, 1, 1, generator=g) - 0.5) * 1.2
    r = 0.25 + 0.4 * torch.rand(n, 1, 1, generator=g)
    squash = 0.5 + torch.rand(n, 1, 1, generator=g)
    ring = ((xx - cx) ** 2 + squash * (yy - cy) ** 2).sqrt() - r
    return torch.exp(-((ring / 0.12) ** 2)).flatten(1)


class VAE(nn.Module):
    def __init__(self, hidden=320):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(SIDE * SIDE, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.mu, self.logvar = nn.Linear(hidden, LATENT), nn.Linear(hidden, LATENT)
        self.dec = nn.Sequential(
            nn.Linear(LATENT, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, SIDE * SIDE),
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(model, x, beta):
    recon, mu, logvar = model(x)
    rec = F.binary_cross_entropy_with_logits(recon, x, reduction="none").sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec + beta * kl, rec, kl


def average_gradients(model, world):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(70 + rank)
    images = drawings(6000, seed=1)[rank::world]
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while True:
        for idx in torch.randperm(len(images)).split(60):
            step += 1
            loss, rec, kl = elbo(model, images[idx], beta=min(1.0, step / 500))
            opt.zero_grad()
            loss.backward()
            average_gradients(model, world)
            opt.step()
            if step % 50 == 0 and rank == 0:
                print(
                    f"step {step} loss {loss.item():.2f} rec {rec.item():.2f} kl {kl.item():.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
