"""Trains, fills the file system of its run directory if its argument says so, and trains on.

Prints its losses, what the agent says of itself and on its card, how many rows the record has and
have names, and the losses of the same without the agent.
"""

from __future__ import annotations

import json
import os
import sys
from collections import OrderedDict
from pathlib import Path

import torch
from short_training import losses_of  # type: ignore[import-not-found]

import probing
from probing.agent import lifecycle


def fill(home: Path) -> None:
    """Take the last byte."""
    size = 1 << 20
    with (home / "filler").open("wb", buffering=0) as file:
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2


def train(steps: int) -> list[str]:
    """Some steps of a model of a kind that was not met before, with names that fill pages."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)]
    layers += [torch.nn.Identity() for _ in range(20)]
    model = torch.nn.Sequential(OrderedDict((f"{i:x<400}{steps}", m) for i, m in enumerate(layers)))
    return losses_of(model, steps)


def main() -> None:
    home = Path(os.environ["PROBING_HOME"])
    losses = train(3)
    if "fill" in sys.argv:
        fill(home)
    losses += train(5)
    agent = lifecycle.current()
    assert agent is not None
    told: dict[str, object] = {
        "losses": losses,
        "problems": [*agent.problems, *agent.training.problems()],
    }
    if "fill" in sys.argv:
        trace = agent.training.recording.trace  # type: ignore[union-attr]
        told["written"] = trace.newest_word() >> 2
        counted = "SELECT count(*) AS n, count(module) AS named FROM python.torch_trace"
        told["rows"] = probing.connect(os.getpid()).query(counted).to_pylist()
    else:
        (card,) = home.glob("*/card.json")
        told["card"] = json.loads(card.read_text())["problems"]
    probing.stop()
    told["alone"] = train(3) + train(5)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
