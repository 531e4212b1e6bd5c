"""Trains, and logs to the tracker of its argument: what it logs is what it prints.

The tracker is imported after the first steps.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

STEPS = 12
Log = Callable[[int, dict[str, Any]], object]


def tensorboard() -> Log:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter("runs")

    def log(step: int, values: dict[str, Any]) -> None:
        writer.add_scalar("loss", values["loss"], step)
        writer.add_scalars("more", {"rate": values["rate"]}, global_step=step)
        writer.add_text("words", "no scalar", step)

    return log


def wandb() -> Log:
    import wandb as tracker

    tracker.init(mode="offline", project="logs", dir=".")

    def log(step: int, values: dict[str, Any]) -> None:
        tracker.log({"loss": values["loss"], "more": {"rate": values["rate"]}, "word": "none"})

    return log


def mlflow() -> Log:
    import mlflow as tracker

    tracker.set_tracking_uri("sqlite:///mlflow.db")

    def log(step: int, values: dict[str, Any]) -> None:
        tracker.log_metric("loss", float(values["loss"]), step=step)
        tracker.log_metrics({"more.rate": values["rate"]}, step=step)

    return log


LOGS: dict[str, Callable[[], Log]] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}

if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    log: Log | None = None
    told = []
    for number in range(STEPS):
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == 2:
            log = LOGS[sys.argv[1]]()
        if number > 3 and log is not None:
            log(number, {"loss": loss.detach(), "rate": 0.1 * number})
            told.append([loss.item(), 0.1 * number])
    print("told", json.dumps(told), flush=True)
