"""Lightning as its first page shows it: validation each epoch, accumulation, clipping, a scheduler."""

import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
L.seed_everything(78)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )
        self.seen = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        with truth.timed("forward"):
            out = self(x)
        loss = nn.functional.cross_entropy(out, y)
        self.seen.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        with truth.timed("evaluation"):
            self.log("val_loss", nn.functional.cross_entropy(self(x), y))

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if len(self.seen) == 2:  # both micro-batches of a step
            truth.step(sum(self.seen) / 2, lr=self.rate)
            self.seen.clear()

    def on_before_optimizer_step(self, optimizer):
        self.rate = optimizer.param_groups[0]["lr"]

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)]


def loader(count):
    data = TensorDataset(torch.randn(count, 256), torch.randint(0, 10, (count,)))
    return DataLoader(data, batch_size=48)


model = Classifier()
truth = Truth(model=model)
trainer = L.Trainer(
    max_steps=planned(14),
    max_epochs=-1,
    accumulate_grad_batches=2,
    gradient_clip_val=0.5,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, loader(480), loader(96))
truth.finish(model)
