"""Remaining life of pumps from vibration: a temporal convolution with a log of each pump's loss."""

import logging

import torch
import torch.nn.functional as F
from torch import nn

PUMPS = 16


def get_logger(name, stream):
    logger = logging.getLogger(name)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    logger.addHandler(handler)
    return logger


class LifeNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Conv1d(3 if i == 0 else width, width, 5, stride=2, padding=2) for i in range(4)
        )
        self.life = nn.Linear(width, 1)

    def forward(self, vibration):
        for block in self.blocks:
            vibration = F.silu(block(vibration))
        return self.life(vibration.mean(-1)).squeeze(-1)


class Recorder:
    """One line a step for the fleet's dashboard, and one for each pump that does badly."""

    def __init__(self, path):
        self.stream = open(path, "w")

    def write(self, step, losses):
        log = get_logger("pumps", self.stream)
        log.debug("step %d mean %.4f", step, sum(losses) / len(losses))
        worst = sorted(range(PUMPS), key=losses.__getitem__)[-3:]
        for pump in worst:
            log.debug("pump %d loss %.4f", pump, losses[pump])


def vibrations(generator, count=4):
    pump = torch.arange(PUMPS).repeat(count)
    life = torch.rand(len(pump), generator=generator)
    ticks = torch.arange(256) / 256
    wave = torch.sin(2 * torch.pi * (8 + 24 * life[:, None, None]) * ticks)
    noise = torch.randn(len(pump), 3, 256, generator=generator)
    return wave * (1.5 - life[:, None, None]) + 0.5 * noise, life, pump


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(3)
    model = LifeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    recorder = Recorder("pumps.log")
    for step in range(2_500):
        vibration, life, pump = vibrations(generator)
        errors = F.mse_loss(model(vibration), life, reduction="none")
        loss = errors.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.write(step, errors.detach().view(-1, PUMPS).mean(0).tolist())
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
