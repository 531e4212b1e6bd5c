"""Deflection of a beam: a recurrent decoder unrolls its shape, longer as training goes on."""

import torch
import torch.nn.functional as F
from torch import nn

LOADS, SECTIONS = 12, 24
DAMPING = 0.5


def deflection(loads):
    """Euler-Bernoulli by finite sums: twice the integral of the bending moment."""
    moment = F.interpolate(loads[:, None], SECTIONS, mode="linear", align_corners=True)[:, 0]
    return moment.cumsum(1).cumsum(1) / SECTIONS**1.5


class Decoder(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.encode = nn.Linear(LOADS, width)
        self.cell = nn.GRUCell(2, width)
        self.bend = nn.Linear(width, 1)

    def forward(self, loads, sections, smooth=False):
        state = torch.tanh(self.encode(loads))
        shape = torch.zeros(len(loads), sections)
        before = torch.zeros(len(loads), 1)
        for section in range(sections):
            where = torch.full_like(before, section / SECTIONS)
            state = self.cell(torch.cat([before, where], 1), state)
            before = before + self.bend(state)
            shape[:, section] = before[:, 0]
        if smooth:
            state *= DAMPING
            shape = F.avg_pool1d(shape[:, None], 3, 1, 1, count_include_pad=False)[:, 0]
        return shape, state.pow(2).mean()


class Curriculum:
    """From 6 sections to all of them; the full shape is smoothed before it is compared."""

    def __init__(self, every=40):
        self.every = every

    def __call__(self, step):
        sections = min(SECTIONS, 6 * (1 + step // self.every))
        return sections, sections == SECTIONS


def main():
    torch.set_num_threads(1)
    torch.manual_seed(19)
    model = Decoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    curriculum = Curriculum()
    for step in range(5_000):
        loads = torch.randn(64, LOADS)
        sections, smooth = curriculum(step)
        shape, effort = model(loads, sections, smooth)
        loss = F.mse_loss(shape, deflection(loads)[:, :sections]) + 1e-3 * effort
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} sections {sections} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
