"""Trains with one optimizer, and changes in every way what the next step has in common with it.

``changing_steps.py short|long``: with ``long`` each step is looked at as if it were the first of
its kind. The last line but one is how many steps were taken to be like the one before.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import torch
from torch import nn

from probing.agent.sources.steps.ends.optimizer_notes import OptimizerNotes

SETTLED = 6
"""Steps between two changes: after the first of them the pattern is known again."""

torch.manual_seed(0)
torch.set_num_threads(1)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


class Training:
    """A model, its optimizer, what one step is, and the ways to change it."""

    def __init__(self) -> None:
        self.model: Any = net()
        self.other = net()
        self.optimizer: Any = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.second: Any = None
        self.passes = 1

    def step(self) -> None:
        for _ in range(self.passes):
            loss = self.model(torch.ones(3, 4)).pow(2).mean() / self.passes
            if self.second is not None:
                loss = loss + self.other(torch.ones(3, 4)).pow(2).mean()
            loss.backward()
        for optimizer in (self.optimizer, self.second):
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()

    def in_thread(self) -> None:
        thread = threading.Thread(target=self.step)
        thread.start()
        thread.join()

    def set_rate(self, rate: Any) -> None:
        self.optimizer.param_groups[0]["lr"] = rate

    def add_group(self) -> None:
        self.optimizer.add_param_group({"params": list(self.other.parameters()), "lr": 0.1})

    def add_idle_optimizer(self) -> None:
        self.second = torch.optim.Adam(net().parameters())

    def add_optimizer(self) -> None:
        self.second = torch.optim.Adam(self.other[0].parameters(), lr=0.02)

    def drop_optimizer(self) -> None:
        self.second = None

    def replace_optimizer(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.005)

    def accumulate(self) -> None:
        self.passes = 2

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            self.model(torch.ones(5, 4))
        self.model.train()

    def grow(self) -> None:
        self.passes = 1
        self.model.append(nn.Linear(1, 1))
        self.replace_optimizer()

    def wrap(self) -> None:
        self.model = nn.Sequential(self.model)

    def unwrap(self) -> None:
        self.model = self.model[0]

    def run(self) -> None:
        changes = (
            *(lambda: self.set_rate(0.003), lambda: self.set_rate(torch.tensor(0.002))),
            *(lambda: self.set_rate(0.001), self.add_group, self.add_idle_optimizer),
            *(self.add_optimizer, self.drop_optimizer, self.replace_optimizer, self.accumulate),
            *(self.evaluate, self.grow, self.wrap, self.unwrap, self.in_thread),
        )
        for change in changes:
            for _ in range(SETTLED):
                self.step()
            change()
        self.step()
        self.set_rate(0.0)
        self.step()


def count_known(steps: list[int]) -> None:
    """Count the steps that are taken to be like the one before."""
    note_again = OptimizerNotes.note_again

    def counted(self: OptimizerNotes, *args: Any) -> Any:
        steps.append(1)
        return note_again(self, *args)

    OptimizerNotes.note_again = counted  # type: ignore[assignment]


if __name__ == "__main__":
    known: list[int] = []
    count_known(known)
    if sys.argv[1] == "long":
        OptimizerNotes.again = lambda *_: None
    Training().run()
    print(len(known), flush=True)
    print("done", flush=True)
    time.sleep(600)
