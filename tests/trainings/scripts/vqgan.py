"""An autoencoder with an adversary, whose weight is that of two gradients at the last layer."""

import torch
from torch import nn
from torch.nn import functional as F
from truth import Truth, planned

torch.manual_seed(88)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 8, 3, 1, 1)
        )
        self.codebook = nn.Embedding(64, 8)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(8, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 3, 3, 1, 1)
        )

    def forward(self, x):
        z = self.encoder(x)
        flat = z.permute(0, 2, 3, 1).reshape(-1, 8)
        codes = self.codebook(torch.cdist(flat, self.codebook.weight).argmin(1))
        quant = codes.view(z.size(0), *z.shape[2:], 8).permute(0, 3, 1, 2)
        commit = F.mse_loss(quant, z.detach()) + 0.25 * F.mse_loss(quant.detach(), z)
        return self.decoder(z + (quant - z).detach()), commit


vqgan = Autoencoder()
discriminator = nn.Sequential(
    nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 1, 4, 2, 1)
)
truth = Truth(vqgan=vqgan, discriminator=discriminator)
opt_vq = torch.optim.Adam(vqgan.parameters(), lr=1e-4, betas=(0.5, 0.9))
opt_disc = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.9))
last_layer = vqgan.decoder[-1].weight
for step in range(planned(14)):
    imgs = torch.rand(8, 3, 32, 32)
    with truth.timed("forward"):
        decoded, commit = vqgan(imgs)
    with truth.timed("forward"):
        disc_real = discriminator(imgs)
    with truth.timed("forward"):
        disc_fake = discriminator(decoded)
    rec_loss = (imgs - decoded).abs().mean()
    g_loss = -disc_fake.mean()
    with truth.timed("backward"):
        rec_grads = torch.autograd.grad(rec_loss, last_layer, retain_graph=True)[0]
    with truth.timed("backward"):
        g_grads = torch.autograd.grad(g_loss, last_layer, retain_graph=True)[0]
    weight = (rec_grads.norm() / (g_grads.norm() + 1e-4)).clamp(0, 1e4).detach()
    vq_loss = rec_loss + commit + 0.8 * weight * g_loss
    gan_loss = 0.5 * (F.relu(1 - disc_real).mean() + F.relu(1 + disc_fake).mean())
    opt_vq.zero_grad()
    with truth.timed("backward"):
        vq_loss.backward(retain_graph=True)
    opt_disc.zero_grad()
    with truth.timed("backward"):
        gan_loss.backward()
    with truth.timed("optimizer"):
        opt_vq.step()
    with truth.timed("optimizer"):
        opt_disc.step()
    truth.step(
        {"vq": vq_loss.item(), "disc": gan_loss.item()},
        lr={"opt_vq": opt_vq.param_groups[0]["lr"], "opt_disc": opt_disc.param_groups[0]["lr"]},
    )

truth.finish(vqgan, discriminator)
