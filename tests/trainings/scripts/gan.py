"""A GAN after pytorch/examples/dcgan: D on real and fake, then G, an Adam for each."""

import torch
import torch.nn as nn
from truth import Truth, planned

torch.manual_seed(999)
nz, image = 64, 784


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(nz, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(),
            nn.Linear(1024, image), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(image, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 512), nn.LeakyReLU(0.2),
            nn.Linear(512, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x):
        return self.main(x).view(-1)


netG = Generator()
netD = Discriminator()
truth = Truth(netG=netG, netD=netD)
criterion = nn.BCELoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=1e-4, betas=(0.5, 0.999))
dataset = torch.rand(512, image) * 2 - 1
batch_size = 32

for i in range(planned(14)):
    real = dataset[torch.randint(0, 512, (batch_size,))]
    # (1) update D: maximize log(D(x)) + log(1 - D(G(z)))
    netD.zero_grad()
    label = torch.ones(batch_size)
    with truth.timed("forward"):
        output = netD(real)
    errD_real = criterion(output, label)
    with truth.timed("backward"):
        errD_real.backward()
    noise = torch.randn(batch_size, nz)
    with truth.timed("forward"):
        fake = netG(noise)
    label.fill_(0)
    with truth.timed("forward"):
        output = netD(fake.detach())
    errD_fake = criterion(output, label)
    with truth.timed("backward"):
        errD_fake.backward()
    errD = errD_real + errD_fake
    with truth.timed("optimizer"):
        optimizerD.step()
    # (2) update G: maximize log(D(G(z)))
    netG.zero_grad()
    label.fill_(1)
    with truth.timed("forward"):
        output = netD(fake)
    errG = criterion(output, label)
    with truth.timed("backward"):
        errG.backward()
    with truth.timed("optimizer"):
        optimizerG.step()
    print(f"[{i}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")
    truth.step(
        {"errD": errD.item(), "errG": errG.item()},
        lr={
            "optimizerD": optimizerD.param_groups[0]["lr"],
            "optimizerG": optimizerG.param_groups[0]["lr"],
        },
        mean_loss={"errD": errD.item() / 2, "errG": errG.item()},  # of the passes of each
    )

truth.finish(netG, netD)
