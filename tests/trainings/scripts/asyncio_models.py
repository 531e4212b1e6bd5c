"""Two models that two tasks of asyncio train side by side, as fast as each can."""

import asyncio

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(53)
wide = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
narrow = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
truth = Truth(wide=wide, narrow=narrow)


async def train(model, steps, pauses):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for _ in range(steps):
        x = torch.randn(64, 256)
        with truth.timed("forward"):
            out = model(x)
        await asyncio.sleep(0)
        loss = nn.functional.mse_loss(out, x)
        optimizer.zero_grad()
        with truth.timed("backward"):
            loss.backward()
        await asyncio.sleep(0)
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])
        for _ in range(pauses):
            await asyncio.sleep(0)


async def main():
    steps = planned(18)
    most = 2 * steps // 3
    await asyncio.gather(train(wide, most, 1), train(narrow, steps - most, 4))
    truth.finish(wide, narrow)


asyncio.run(main())
