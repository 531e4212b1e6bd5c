"""Lightning with manual optimization and two optimizers, after its GAN example."""

import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
L.seed_everything(25)


class GAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(
            nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 784), nn.Tanh()
        )
        self.discriminator = nn.Sequential(
            nn.Linear(784, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 1)
        )

    def forward(self, z):
        return self.generator(z)

    def training_step(self, batch):
        (real,) = batch
        g_opt, d_opt = self.optimizers()
        bce = nn.functional.binary_cross_entropy_with_logits
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        with truth.timed("forward"):
            fake = self(torch.randn(len(real), 64))
        with truth.timed("forward"):
            on_real = self.discriminator(real)
        with truth.timed("forward"):
            on_fake = self.discriminator(fake.detach())
        d_loss = bce(on_real, ones) + bce(on_fake, zeros)
        d_opt.zero_grad()
        with truth.timed("backward"):
            self.manual_backward(d_loss)
        with truth.timed("optimizer"):
            d_opt.step()

        with truth.timed("forward"):
            scores = self.discriminator(fake)
        g_loss = bce(scores, ones)
        g_opt.zero_grad()
        with truth.timed("backward"):
            self.manual_backward(g_loss)
        with truth.timed("optimizer"):
            g_opt.step()
        truth.step(
            {"d_loss": d_loss.item(), "g_loss": g_loss.item()},
            lr={"d_opt": d_opt.param_groups[0]["lr"], "g_opt": g_opt.param_groups[0]["lr"]},
        )

    def configure_optimizers(self):
        g_opt = torch.optim.Adam(self.generator.parameters(), lr=1e-4)
        d_opt = torch.optim.Adam(self.discriminator.parameters(), lr=2e-4)
        return g_opt, d_opt


loader = DataLoader(TensorDataset(torch.rand(480, 784)), batch_size=32)
model = GAN()
truth = Truth(model=model)
trainer = L.Trainer(
    max_steps=2 * planned(14),  # Lightning counts the steps of each optimizer
    max_epochs=-1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, loader)
truth.finish(model)
