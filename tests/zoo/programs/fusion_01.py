"""Disruptions of a fusion plasma from diagnostics, some of which fail now and then."""

import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, TIMES = 40, 200


class BadShot(Exception):
    pass


class Diagnostics:
    """Batches of shots; a shot with a dead magnetic probe makes its batch unusable."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def read(self, count=16):
        shots = torch.randn(count, CHANNELS, TIMES, generator=self.generator)
        disrupts = torch.rand(count, generator=self.generator) < 0.4
        ramp = torch.linspace(0, 1.5, TIMES)
        shots[:, :8] += disrupts[:, None, None] * ramp * 0.6
        if torch.rand((), generator=self.generator) < 0.2:
            shots[torch.randint(0, count, (1,), generator=self.generator), 3] = 0
        return shots, disrupts.float()

    def check(self, shots):
        spread = shots[:, :8].std(-1)
        if (spread < 1e-6).any():
            raise BadShot(f"probe {int(spread.amin(0).argmin())} is dead")
        return shots / shots.std()


class PlasmaNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.stem = nn.Conv1d(CHANNELS, width, 7, stride=2, padding=3)
        self.deep = nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.risk = nn.Linear(2 * width, 1)

    def forward(self, shots):
        hidden = F.relu(self.deep(F.relu(self.stem(shots))))
        return self.risk(torch.cat([hidden.mean(-1), hidden.amax(-1)], 1)).squeeze(-1)


class Run:
    def __init__(self):
        self.diagnostics = Diagnostics(66)
        self.model = PlasmaNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.failures = []

    def fit(self):
        shots, disrupts = self.diagnostics.read()
        shots = self.diagnostics.check(shots)
        loss = F.binary_cross_entropy_with_logits(self.model(shots), disrupts)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def go(self, steps):
        loss = float("nan")
        for step in range(steps):
            try:
                loss = self.fit()
            except BadShot as failure:
                self.failures.append(failure)
            if step % 20 == 0:
                print(f"step {step} loss {loss:.4f} failed {len(self.failures)}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(66)
    Run().go(2_400)
