"""Tells something at each moment of its steps, with the step that it must belong to as the value.

Its table has the loss of each step, told right behind it.
"""

from __future__ import annotations

import time
from typing import Any

import torch

import probing

LOSSES = probing.table("losses", {"told": float})
SAMPLES: Any = [torch.full((4,), float(number)) for number in range(6)]


def main() -> None:
    """Two epochs with a validation behind each, then steps that the script marks."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    accuracy = torch.nn.L1Loss()
    step = 0
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(SAMPLES, batch_size=2):
            probing.metric(batch_came=step)
            loss = model(batch).square().mean()
            probing.metric(called=step)
            loss.backward()
            probing.metric(passed=step)
            optimizer.step()
            optimizer.zero_grad()
            accuracy(torch.ones(1), torch.ones(1))
            probing.metric(stepped=step)
            LOSSES.add(told=loss.item())
            step += 1
        probing.metric(epoch_ended=step - 1)
        model.eval()
        with torch.no_grad():
            model(SAMPLES[0])
        model.train()
        probing.metric(validated=step)
    model(SAMPLES[0]).sum().backward()
    optimizer.step()
    probing.metric(without_batch=step)
    probing.step()  # ends the one that the optimizer has begun: from here on marks alone do
    for marked in range(step + 2, step + 4):
        probing.metric(behind_mark=marked)
        probing.step()


main()
print("ready", flush=True)
time.sleep(600)
