"""Counts what Python does in a step for recording: functions that it calls, and instructions.

Counts are the same on a busy machine. All functions are traced in steps of a small model, first
paused and then recorded; what the second has more is what recording adds.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

from probing.agent import lifecycle
from probing.settings import Settings
from tests.benchmarks.programs.small_steps import make_fed_step, make_step

STEPS = 64
_BEFORE = 200
"""Steps that are not counted: what is learned in the first ones is known by then."""
_WAYS = {"plain": make_step, "fed": make_fed_step}


class Counts:
    """Calls and instructions, by function."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.instructions: Counter[CodeType] = Counter()

    def count(self, steps: int, step: Any) -> None:
        """Trace so many steps."""
        sys.settrace(self._called)
        try:
            for _ in range(steps):
                step()
        finally:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, _arg: object) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.calls[frame.f_code] += 1
        instructions, code = self.instructions, frame.f_code

        def trace(_frame: FrameType, event: str, _arg: object) -> Any:
            if event == "opcode":
                instructions[code] += 1
            return trace

        return trace


def _name_of(code: CodeType) -> str:
    path = os.path.relpath(code.co_filename, os.path.dirname(os.path.dirname(__file__)))
    name = getattr(code, "co_qualname", code.co_name)
    return f"{path.lstrip('./')}:{code.co_firstlineno} {name}"


def main(steps: int = STEPS, way: str = "plain") -> dict[str, list[Any]]:
    """What recording adds to a step, by function: its calls and its instructions.

    Args:
        way: What makes the steps: `plain`, or `fed`, with a loader and clipping.
    """
    training = lifecycle.start(Settings.from_env(os.environ)).training
    step = _WAYS[way]()
    found: dict[str, Counts] = {}
    for state in ("recorded", "paused"):
        if state == "paused":
            training.pause()
        for _ in range(_BEFORE):
            step()
        found[state] = Counts()
        found[state].count(steps, step)
    if training.problems():
        raise RuntimeError(f"the recorder gave up: {training.problems()}")
    recorded, paused = found["recorded"], found["paused"]
    rows: dict[str, list[Any]] = {}
    for code in recorded.calls | paused.calls:
        calls = recorded.calls[code] - paused.calls[code]
        instructions = recorded.instructions[code] - paused.instructions[code]
        if calls or instructions:  # those that make named tuples all have one name
            before = rows.get(_name_of(code), (0.0, 0.0))
            rows[_name_of(code)] = [before[0] + calls / steps, before[1] + instructions / steps]
    return dict(sorted(rows.items(), key=lambda row: -row[1][1]))


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
