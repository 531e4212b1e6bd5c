"""CycleGAN: one optimizer for both generators, one for both discriminators, fakes from a pool."""

import itertools
import random

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(205)
random.seed(205)


def generator():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 3, 3, padding=1), nn.Tanh(),
    )  # fmt: skip


def discriminator():
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1),
        nn.LeakyReLU(0.2), nn.Conv2d(64, 1, 4, padding=1),
    )  # fmt: skip


class Pool:
    def __init__(self, size=16):
        self.size, self.images = size, []

    def query(self, image):
        if len(self.images) < self.size:
            self.images.append(image)
            return image
        if random.random() < 0.5:
            at = random.randrange(self.size)
            old, self.images[at] = self.images[at], image
            return old
        return image


netG_A, netG_B, netD_A, netD_B = generator(), generator(), discriminator(), discriminator()
truth = Truth(netG_A=netG_A, netG_B=netG_B, netD_A=netD_A, netD_B=netD_B)
optimizer_G = torch.optim.Adam(itertools.chain(netG_A.parameters(), netG_B.parameters()), lr=2e-4)
optimizer_D = torch.optim.Adam(itertools.chain(netD_A.parameters(), netD_B.parameters()), lr=1e-4)
pool_A, pool_B = Pool(), Pool()
l1, gan = nn.L1Loss(), lambda out, real: ((out - float(real)) ** 2).mean()


def backward_D(net, real, fake):
    with truth.timed("forward"):
        on_real = net(real)
    with truth.timed("forward"):
        on_fake = net(fake.detach())
    loss = (gan(on_real, True) + gan(on_fake, False)) * 0.5
    with truth.timed("backward"):
        loss.backward()
    return loss.item()


def grads_of(nets, on):
    for net in nets:
        net.requires_grad_(on)


for step in range(planned(14)):
    real_A, real_B = torch.rand(4, 3, 32, 32) * 2 - 1, torch.rand(4, 3, 32, 32) * 2 - 1
    with truth.timed("forward"):
        fake_B = netG_A(real_A)
        rec_A = netG_B(fake_B)
        fake_A = netG_B(real_B)
        rec_B = netG_A(fake_A)
    grads_of([netD_A, netD_B], False)
    optimizer_G.zero_grad()
    with truth.timed("forward"):
        on_A, on_B = netD_A(fake_B), netD_B(fake_A)
    loss_G = gan(on_A, True) + gan(on_B, True) + 10 * (l1(rec_A, real_A) + l1(rec_B, real_B))
    with truth.timed("backward"):
        loss_G.backward()
    with truth.timed("optimizer"):
        optimizer_G.step()
    grads_of([netD_A, netD_B], True)
    optimizer_D.zero_grad()
    loss_D_A = backward_D(netD_A, real_B, pool_B.query(fake_B))
    loss_D_B = backward_D(netD_B, real_A, pool_A.query(fake_A))
    with truth.timed("optimizer"):
        optimizer_D.step()
    truth.step(
        {"G": loss_G.item(), "D_B": loss_D_B},
        lr={
            "optimizer_G": optimizer_G.param_groups[0]["lr"],
            "optimizer_D": optimizer_D.param_groups[0]["lr"],
        },
        mean_loss={"D_B": (loss_D_A + loss_D_B) / 2},
    )

truth.finish(netG_A, netG_B, netD_A, netD_B)
