"""A Wasserstein GAN with a gradient penalty, after Gulrajani: three critic steps per generator step."""

import torch
from torch import nn
from truth import Truth, planned

CRITICS, LATENT, LAMBDA = 3, 32, 10.0

torch.manual_seed(23)
generator = nn.Sequential(nn.Linear(LATENT, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh())
critic = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
truth = Truth(generator=generator, critic=critic)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.0, 0.9))
images = torch.rand(256, 784) * 2 - 1


def penalty(real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    with truth.timed("forward"):
        score = critic(between)
    with truth.timed("backward"):
        (slope,) = torch.autograd.grad(score.sum(), between, create_graph=True)
    return LAMBDA * (slope.norm(dim=1) - 1).square().mean()


for _ in range(planned(12)):
    losses_c = []
    for _ in range(CRITICS):
        real = images[torch.randint(0, 256, (64,))]
        with torch.no_grad(), truth.timed("forward"):
            fake = generator(torch.randn(64, LATENT))
        with truth.timed("forward"):
            fake_score = critic(fake)
        with truth.timed("forward"):
            real_score = critic(real)
        loss_c = fake_score.mean() - real_score.mean() + penalty(real, fake)
        opt_c.zero_grad()
        with truth.timed("backward"):
            loss_c.backward()
        with truth.timed("optimizer"):
            opt_c.step()
        losses_c.append(loss_c.item())

    with truth.timed("forward"):
        made = generator(torch.randn(64, LATENT))
    with truth.timed("forward"):
        score = critic(made)
    loss_g = -score.mean()
    opt_g.zero_grad()
    with truth.timed("backward"):
        loss_g.backward()
    with truth.timed("optimizer"):
        opt_g.step()
    truth.step(
        {"loss_c": loss_c.item(), "loss_g": loss_g.item()},
        lr={"opt_c": opt_c.param_groups[0]["lr"], "opt_g": opt_g.param_groups[0]["lr"]},
        mean_loss={"loss_c": sum(losses_c) / CRITICS, "loss_g": loss_g.item()},
    )

truth.finish(generator, critic)
