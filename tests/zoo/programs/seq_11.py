"""Multi-station rainfall forecasting with a stacked GRU."""

import argparse
import time
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.simplefilter("ignore", UserWarning)
torch.set_num_threads(1)


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--stations", type=int, default=12)
    p.add_argument("--history", type=int, default=36)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--max-norm", type=float, default=0.5)
    p.add_argument("--freeze-calendar", action="store_true", default=True)
    return p.parse_args()


class RainNet(nn.Module):
    def __init__(self, stations, hidden):
        super().__init__()
        self.calendar = nn.Embedding(12, 4)
        self.gru = nn.GRU(stations + 4, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, stations)

    def forward(self, x, month):
        c = self.calendar(month)[:, None].expand(-1, x.shape[1], -1)
        h, _ = self.gru(torch.cat([x, c], -1))
        return self.head(h[:, -1])


class Weather:
    def __init__(self, stations, seed):
        self.n = stations
        self.g = torch.Generator().manual_seed(seed)
        self.coupling = (
            torch.randn(stations, stations, generator=torch.Generator().manual_seed(1)) * 0.25
        )

    def windows(self, batch, history):
        month = torch.randint(0, 12, (batch,), generator=self.g)
        x = torch.randn(batch, self.n, generator=self.g)
        seq = []
        for _ in range(history + 1):
            storm = (torch.rand(batch, 1, generator=self.g) < 0.03) * 40.0
            x = (
                0.6 * x
                + torch.tanh(x) @ self.coupling
                + 0.3 * torch.randn(batch, self.n, generator=self.g)
            )
            seq.append(x + storm * torch.rand(batch, self.n, generator=self.g))
        seq = torch.stack(seq, 1)
        return seq[:, :-1], month, seq[:, -1]


class Forecaster:
    def __init__(self, opt_args):
        self.args = opt_args
        torch.manual_seed(3)
        self.net = RainNet(opt_args.stations, opt_args.hidden)
        if opt_args.freeze_calendar:
            self.net.calendar.weight.requires_grad_(False)
        self.trainable = filter(lambda p: p.requires_grad, self.net.parameters())
        self.optim = torch.optim.SGD(self.trainable, lr=opt_args.lr, momentum=0.9)
        self.weather = Weather(opt_args.stations, 50)

    def step(self):
        x, month, y = self.weather.windows(self.args.batch, self.args.history)
        loss = F.mse_loss(self.net(x, month), y)
        self.optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trainable, self.args.max_norm)
        self.optim.step()
        return loss.item()


def main():
    args = options()
    f = Forecaster(args)
    start = time.time()
    window = []
    n = 0
    while True:
        window.append(f.step())
        n += 1
        if n % 30 == 0:
            window.sort()
            print(
                f"{time.time() - start:6.1f}s step {n} median {window[len(window) // 2]:.3f} "
                f"worst {window[-1]:.3f}",
                flush=True,
            )
            window.clear()


if __name__ == "__main__":
    main()
