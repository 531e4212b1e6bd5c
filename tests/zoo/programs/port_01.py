"""Arrival times of container ships; the machine may be taken away, a checkpoint is kept."""

import pathlib
import signal
import sys

import torch
import torch.nn.functional as F
from torch import nn

CHECKPOINT = pathlib.Path("port.pt")


class ArrivalNet(nn.Module):
    def __init__(self, ports=80, width=96):
        super().__init__()
        self.port = nn.Embedding(ports, 16)
        self.layers = nn.Sequential(
            nn.Linear(16 * 2 + 10, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, origin, target, voyage):
        inputs = torch.cat([self.port(origin), self.port(target), voyage], dim=1)
        return self.layers(inputs).squeeze(-1)


class Voyages:
    def __init__(self, seed, ports=80):
        self.generator = torch.Generator().manual_seed(seed)
        self.places = torch.rand(ports, 2, generator=self.generator)

    def batch(self, count=512):
        ends = torch.randint(0, len(self.places), (2, count), generator=self.generator)
        voyage = torch.randn(count, 10, generator=self.generator)
        way = (self.places[ends[0]] - self.places[ends[1]]).norm(dim=1)
        return *ends, voyage, 3 * way + 0.3 * voyage[:, 0].relu()


class Run:
    def __init__(self):
        self.voyages = Voyages(50)
        self.model = ArrivalNet()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.step, self.leave = 0, False
        signal.signal(signal.SIGTERM, self.asked_to_leave)
        if CHECKPOINT.exists():
            state = torch.load(CHECKPOINT)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.voyages.generator.set_state(state["generator"])
            self.step = state["step"]

    def asked_to_leave(self, signum, frame):
        self.leave = True

    def save(self):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.voyages.generator.get_state(),
            "step": self.step,
        }
        torch.save(state, CHECKPOINT.with_suffix(".new"))
        CHECKPOINT.with_suffix(".new").replace(CHECKPOINT)

    def go(self, steps):
        while self.step < steps and not self.leave:
            origin, target, voyage, hours = self.voyages.batch()
            loss = F.smooth_l1_loss(self.model(origin, target, voyage), hours)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.step % 20 == 0:
                print(f"step {self.step} loss {loss.item():.4f}", flush=True)
            self.step += 1
            if self.step % 500 == 0:
                self.save()
        self.save()
        if self.leave:
            print(
                f"asked to leave the machine: saved step {self.step} for the next start", flush=True
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(50)
    Run().go(100_000)
    sys.exit(0)
