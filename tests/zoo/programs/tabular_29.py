"""Multi-target regression on lab results: many missing values in inputs and targets."""

import time

import torch
from torch import nn

ROWS, FEATS, TARGETS, BATCH, STEPS_PER_EPOCH = 20_000, 60, 12, 128, 150
MAX_SECONDS = 600


def make_table():
    g = torch.Generator().manual_seed(0)
    latent = torch.randn(ROWS, 10, generator=g)
    x = latent @ torch.randn(10, FEATS, generator=g) + 0.5 * torch.randn(ROWS, FEATS, generator=g)
    y = torch.tanh(latent) @ torch.randn(10, TARGETS, generator=g)
    y = 50 + 12 * (y + 2.0 * torch.randn(ROWS, TARGETS, generator=g))
    x[torch.rand(x.shape, generator=g) < 0.3] = float("nan")
    y[torch.rand(y.shape, generator=g) < 0.7] = float("nan")
    return x, y


class LabNet(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2 * FEATS, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Dropout(0.3),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Dropout(0.3),
            nn.Linear(width, TARGETS),
        )
        self.register_buffer("mean", torch.zeros(TARGETS))
        self.register_buffer("std", torch.ones(TARGETS))

    def forward(self, x):
        missing = x.isnan()
        h = self.net(torch.cat([torch.where(missing, 0.0, x), missing.float()], 1))
        return h * self.std + self.mean


def masked_loss(pred, y):
    known = ~y.isnan()
    error = torch.where(known, pred - torch.where(known, y, 0.0), 0.0)
    return error.pow(2).sum() / known.sum().clamp(min=1)


class Window:
    """Recent rows that are drawn more often; filled as training goes, never above its size."""

    def __init__(self, size):
        self.rows, self.size = [], size

    def add(self, rows):
        self.rows = (self.rows + rows.tolist())[-self.size :]

    def draw(self, n):
        pick = torch.randint(len(self.rows), (n,))
        return torch.tensor([self.rows[k] for k in pick.tolist()])


def main():
    torch.manual_seed(0)
    x, y = make_table()
    model = LabNet()
    model.mean.copy_(y.nanmean(0))
    model.std.copy_((y - model.mean).pow(2).nanmean(0).sqrt())
    train, valid = torch.arange(ROWS - 2000), torch.arange(ROWS - 2000, ROWS)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=4, min_lr=1e-5)
    window = Window(6000)
    deadline, epoch = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        for _ in range(STEPS_PER_EPOCH):
            fresh = train[torch.randint(len(train), (BATCH,))]
            window.add(fresh)
            rows = torch.cat([fresh, window.draw(BATCH // 2)])
            loss = masked_loss(model(x[rows]), y[rows])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
        model.eval()
        with torch.no_grad():
            val = masked_loss(model(x[valid]), y[valid]).item()
        model.train()
        sched.step(val)
        epoch += 1
        print(
            f"epoch {epoch} step {epoch * STEPS_PER_EPOCH} loss {loss.item():.1f} val {val:.1f} lr {opt.param_groups[0]['lr']:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
