"""Marks steps, spans and metrics of its own, prints what they must be, and waits to be ended."""

from __future__ import annotations

import contextlib
import sys
import time

import numpy as np
import torch

import probing
from probing.script import marks

STEPS = 3


@probing.span("evaluate")
def evaluate() -> int:
    with probing.span("inner"):
        return 7


class Closed:
    """An object that cannot be asked for anything any more."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def without_agent() -> None:
    """Marks do nothing, and cost nothing that is kept."""
    assert marks.recorder is None
    probing.step()
    probing.metric(reward=1.0)
    probing.see_memory("nobody looks")
    assert evaluate() == 7


def with_agent() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(STEPS):
        for _ in range(2):  # two optimizer steps make one of ours
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        probing.metric(reward=number / 2, count=number, flag=True, tensor=torch.tensor(0.25))
        right = torch.tensor([1, 2, 3]) == torch.tensor([1, 2, 4])
        probing.metric(right=right.sum(), all_right=right.all(), one=torch.tensor([9]))
        probing.metric(imaginary=torch.tensor(1j))
        probing.metric(text="a word", nothing=None, many=torch.ones(2), huge=10**400)
        probing.metric(word=np.str_("a word"), day=np.datetime64("2000-01-01"))
        probing.metric(complex=np.complex64(1j), half=np.float16(0.5), closed=Closed())
        assert evaluate() == 7
        with contextlib.suppress(KeyError), probing.span("broken"):
            raise KeyError
        probing.step()
    with probing.span("open"):
        print("ready", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("ready", flush=True)
    time.sleep(600)
