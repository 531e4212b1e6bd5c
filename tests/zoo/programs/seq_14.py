"""Day-ahead load forecasting with a dilated conv net; the series live in one .npz archive."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SITES, HISTORY, HORIZON = 8, 168, 24


def prepare_archive(path, hours=2 * 365 * 24, seed=31):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    daily = np.sin(2 * np.pi * (t[:, None] / 24 + rng.random(SITES)))
    weekly = 0.4 * np.sin(2 * np.pi * (t[:, None] / 168 + rng.random(SITES)))
    temp = (
        0.6 * np.sin(2 * np.pi * t / 8760)[:, None]
        + np.cumsum(rng.normal(scale=0.02, size=(hours, SITES)), 0) * 0.2
    )
    load = daily + weekly + 0.5 * temp + rng.normal(scale=0.15, size=(hours, SITES))
    np.savez_compressed(path, load=load.astype(np.float32), temp=temp.astype(np.float32))


class Windows(Dataset):
    def __init__(self, path, lo, hi):
        self.archive = np.load(path)
        self.lo, self.hi = lo, hi

    def __len__(self):
        return self.hi - self.lo - HISTORY - HORIZON

    def __getitem__(self, i):
        a = self.lo + i
        b = a + HISTORY
        past = np.concatenate([self.archive["load"][a:b], self.archive["temp"][a:b]], axis=1)
        future = self.archive["load"][b : b + HORIZON]
        return torch.from_numpy(past.T.copy()), torch.from_numpy(future.copy())


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        h = nn.functional.pad(x, (self.pad, 0))
        return x + self.mix(nn.functional.glu(self.conv(h), dim=1))


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.inp = nn.Conv1d(2 * SITES, width, 1)
        self.stack = nn.Sequential(*[Residual(width, d) for d in (1, 2, 4, 8, 16, 32)])
        self.out = nn.Linear(width, HORIZON * SITES)

    def forward(self, past):
        h = self.stack(self.inp(past))[..., -1]
        return self.out(h).view(-1, HORIZON, SITES)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(31)
    path = "series.npz"
    prepare_archive(path)
    loader = DataLoader(Windows(path, 0, 15_000), batch_size=12, shuffle=True, drop_last=True)
    model = Forecaster()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=20_000)
    step, running = 0, None
    for epoch in range(12):
        for past, future in loader:
            loss = nn.functional.huber_loss(model(past), future)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            step += 1
            running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
            if step % 20 == 0:
                print(
                    f"epoch {epoch} step {step} huber {running:.4f} lr {sched.get_last_lr()[0]:.2e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
