"""Denoising diffusion on small images, with samples drawn now and then."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(21)
T = 100
betas = torch.linspace(1e-4, 0.02, T)
alphas_bar = (1 - betas).cumprod(0)


class UNet(nn.Module):
    def __init__(self, c=48):
        super().__init__()
        self.time = nn.Sequential(nn.Embedding(T, c), nn.Linear(c, c), nn.SiLU())
        self.inc = nn.Conv2d(1, c, 3, padding=1)
        self.down = nn.Conv2d(c, 2 * c, 4, stride=2, padding=1)
        self.mid = nn.Conv2d(2 * c, 2 * c, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * c, c, 4, stride=2, padding=1)
        self.outc = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x, t):
        h = torch.relu(self.inc(x) + self.time(t)[:, :, None, None])
        m = torch.relu(self.mid(torch.relu(self.down(h))))
        return self.outc(torch.relu(self.up(m)) + h)


unet = UNet()
truth = Truth(unet=unet)
opt = torch.optim.AdamW(unet.parameters(), lr=2e-4)
images = torch.randn(64, 1, 16, 16)


@torch.no_grad()
def sample(n, steps=4):
    x = torch.randn(n, 1, 16, 16)
    for t in reversed(range(0, T, T // steps)):
        eps = unet(x, torch.full((n,), t))
        x = (x - betas[t] / (1 - alphas_bar[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
    return x


for step in range(planned(14)):
    x0 = images[torch.randint(0, 64, (16,))]
    t = torch.randint(0, T, (16,))
    noise = torch.randn_like(x0)
    a = alphas_bar[t][:, None, None, None]
    with truth.timed("forward"):
        predicted = unet(a.sqrt() * x0 + (1 - a).sqrt() * noise, t)
    loss = nn.functional.mse_loss(predicted, noise)
    opt.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        opt.step()
    if step % 6 == 5:
        with truth.timed("evaluation"):
            sample(4)
    truth.step(loss.item(), lr=opt.param_groups[0]["lr"])

truth.finish(unet)
