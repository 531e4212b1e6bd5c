"""A training under asyncio, beside a heartbeat."""

import asyncio

import torch
from torch import nn
from truth import Truth, planned

beats = 0


async def heartbeat():
    global beats
    while True:
        beats += 1
        await asyncio.sleep(0.05)


async def train(steps):
    torch.manual_seed(9)
    net = nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    truth = Truth(net=net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-4)
    for step in range(steps):
        x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
        with truth.timed("forward"):
            out = net(x)
        loss = nn.functional.cross_entropy(out, y)
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        optimizer.zero_grad()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])
        await asyncio.sleep(0)
    truth.finish(net)


async def main():
    pulse = asyncio.create_task(heartbeat())
    await train(planned(16))
    pulse.cancel()


asyncio.run(main())
