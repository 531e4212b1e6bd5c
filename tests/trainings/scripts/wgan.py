"""A Wasserstein GAN whose critic is trained five times for each step of the generator."""

import torch
import torch.nn as nn
from truth import Truth, planned

N_CRITIC = 5
CLIP_VALUE = 0.01
LATENT = 32

torch.manual_seed(42)
generator = nn.Sequential(nn.Linear(LATENT, 768), nn.ReLU(), nn.Linear(768, 784), nn.Tanh())
critic = nn.Sequential(nn.Linear(784, 768), nn.LeakyReLU(0.2), nn.Linear(768, 1))
truth = Truth(generator=generator, critic=critic)
opt_g = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
opt_c = torch.optim.RMSprop(critic.parameters(), lr=1e-4)
images = torch.rand(256, 784) * 2 - 1

for iteration in range(planned(14)):
    losses_c = []
    for _ in range(N_CRITIC):
        real = images[torch.randint(0, 256, (32,))]
        z = torch.randn(32, LATENT)
        opt_c.zero_grad()
        with torch.no_grad(), truth.timed("forward"):
            fake = generator(z)
        with truth.timed("forward"):
            real_score = critic(real)
        with truth.timed("forward"):
            fake_score = critic(fake)
        loss_c = fake_score.mean() - real_score.mean()
        with truth.timed("backward"):
            loss_c.backward()
        with truth.timed("optimizer"):
            opt_c.step()
        losses_c.append(loss_c.item())
        with torch.no_grad():
            for p in critic.parameters():
                p.clamp_(-CLIP_VALUE, CLIP_VALUE)

    opt_g.zero_grad()
    z = torch.randn(32, LATENT)
    with truth.timed("forward"):
        made = generator(z)
    with truth.timed("forward"):
        score = critic(made)
    loss_g = -score.mean()
    with truth.timed("backward"):
        loss_g.backward()
    with truth.timed("optimizer"):
        opt_g.step()
    truth.step(
        {"loss_c": loss_c.item(), "loss_g": loss_g.item()},
        lr={"opt_c": opt_c.param_groups[0]["lr"], "opt_g": opt_g.param_groups[0]["lr"]},
        mean_loss={"loss_c": sum(losses_c) / N_CRITIC, "loss_g": loss_g.item()},
    )

truth.finish(generator, critic)
