"""Trains for ever, and calls all that it can by names that a page must not take for markup.

Its argument says how long a step rests, in seconds.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import torch
from torch import nn

import probing

MARKUP = "<img src=x onerror=\"hit = '{}'\">"


def wait() -> None:
    time.sleep(3600)


if __name__ == "__main__":
    rest_s = float(sys.argv[1]) if sys.argv[1:] else 0.04
    torch.manual_seed(0)
    names = [name for name in ("co_name", "co_qualname") if hasattr(wait.__code__, name)]
    named: dict[str, Any] = dict.fromkeys(names, MARKUP.format("function"))
    wait.__code__ = wait.__code__.replace(**named)
    threading.Thread(target=wait, name=MARKUP.format("thread"), daemon=True).start()
    kind = type(MARKUP.format("class"), (nn.Linear,), {})
    model = nn.Sequential()
    model.add_module(MARKUP.format("module"), kind(8, 8))
    model.add_module("turned\u202egnp", nn.Linear(8, 8))
    model.add_module("x" * 2000, nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        probing.metric(**{MARKUP.format("metric"): 0.5})
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(rest_s)
