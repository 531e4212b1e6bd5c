"""Trains the GPT on one core until stdin is closed; prints when each step ended.

The agent's thread is started before the training's is pinned, so that it and the SQL worker
stay where the process was started. The ring is filled first: that is what queries meet in a
training that has run for a while.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn

from probing.agent import lifecycle
from probing.settings import Settings
from tests.benchmarks.programs.gpt import make_stepper

LEAVES = 100


class Filler(nn.Module):
    """Makes many rows quickly."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves = nn.ModuleList(nn.Identity() for _ in range(LEAVES))

    def forward(self, x: Tensor) -> Tensor:
        """Call every leaf."""
        for leaf in self.leaves:
            x = leaf(x)
        return x


def main(core: int) -> dict[str, Any]:
    """Train; returns when the first step began and each ended, by the clock that all share.

    Beside it, how much processor time the agent's threads had used by then.
    """
    settings = Settings.from_env(os.environ)
    lifecycle.start(settings)
    os.sched_setaffinity(0, {core})  # this thread, and those that it starts
    filler, x = Filler(), torch.zeros(1)
    for _ in range(settings.trace_rows // LEAVES):
        filler(x)
    step = make_stepper(workers=1)  # more than cores only draw a warning
    for _ in range(5):
        step()
    ends = [time.perf_counter()]
    agents = [time.process_time() - time.thread_time()]
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        step()
        ends.append(time.perf_counter())
        agents.append(time.process_time() - time.thread_time())
    return {"ends": ends, "agents": agents}


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))), flush=True)
