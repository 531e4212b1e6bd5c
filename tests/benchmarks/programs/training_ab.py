"""Trains a model in blocks of steps, recording and not in turn; prints how long each block took.

What is measured is a training that has been recorded for a while: the first steps of a recording,
in which it is planned what is recorded of the others, are not counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from typing import Any

from probing.agent import lifecycle
from probing.agent.recording.training import TorchTraining
from probing.ring import peek as ring_peek
from probing.settings import Settings

STEPS = 12
"""Steps of a block."""
_BEFORE = {"paused": 2, "recorded": 17}
"""Those before them, not counted: plans are made after 1, 2, 4, 8, 16 and 32."""


def main(model: str, budget_s: float) -> dict[str, Any]:
    """Train for so many seconds, and at least one pair of blocks.

    Args:
        model: The module beside this one that makes it.
    """
    make_stepper = import_module(f"{__package__}.{model}").make_stepper  # torch comes with it
    agent = lifecycle.start(Settings.from_env(os.environ))
    training = agent.training
    training.pause()
    step = make_stepper()
    for _ in range(5):
        step()
    blocks: dict[str, dict[str, list[float]]] = {
        name: {"wall": [], "cpu": [], "per_step": []} for name in ("paused", "recorded")
    }
    assert isinstance(training, TorchTraining)  # torch has been imported by now
    recording = training._recording

    def run_block(name: str) -> None:
        if name == "recorded":
            training.start()
        for _ in range(_BEFORE[name]):
            step()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(STEPS):
            step()
        blocks[name]["cpu"].append(time.process_time() - cpu)
        blocks[name]["wall"].append(time.perf_counter() - wall)
        blocks[name]["per_step"].append(recording.costs.total_ns * 1e-9)
        training.pause()

    end, pairs = time.monotonic() + budget_s, 0
    while not pairs or time.monotonic() < end:
        for name in ("paused", "recorded") if pairs % 2 == 0 else ("recorded", "paused"):
            run_block(name)
        pairs += 1
    if training.problems():
        raise RuntimeError(f"the recorder gave up: {training.problems()}")
    if not training.step():
        raise RuntimeError("nothing has been recorded")
    trace = next(t for t in ring_peek.tables_answer(agent.folder).tables if t.name == "torch_trace")
    return {
        **blocks,
        "steps": STEPS,
        "rows": trace.written,
        "recorded_steps": pairs * (STEPS + _BEFORE["recorded"]),
    }


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
