"""Ctrl-C or a time limit at every moment of a recorded call.

Asserts that it reaches the program and is no fault of ours, and that the next call is recorded.
"""

from __future__ import annotations

import dis
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import nn

import probing

OURS = tuple(
    f"/agent/sources/{name}.py"
    for name in ("calls/modules", "calls/backward/passes", "steps/progress")
)
# Between two `try:` Python 3.11 has one that no handler covers; no signal is looked for there.
NOP = dis.opmap["NOP"]
ROWS = (
    "SELECT stage, module, depth, duration IS NULL AS is_open, count(*) AS n"
    " FROM python.torch_trace WHERE stage IN ('forward', 'backward') AND NOT failed GROUP BY ALL"
)


class Late(Exception):
    """A time limit's exception."""


def ring(_signal: int, _frame: FrameType) -> None:
    """A signal's handler, by turns that of Ctrl-C and that of a time limit."""
    raise (KeyboardInterrupt if calls % 2 else Late)


def interrupt_at(moment: int) -> Callable[[FrameType, str, object], Any]:
    """A trace function that raises at the n-th instruction of ours."""
    left = itertools.count(moment, -1)

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.endswith(OURS):
            return None
        frame.f_trace_opcodes = True
        is_moment = event == "opcode" and frame.f_code.co_code[frame.f_lasti] != NOP
        if is_moment and next(left) == 0:
            ring(signal.SIGALRM, frame)
        return trace

    return trace


def call_interrupted(model: nn.Module, x: torch.Tensor, moment: int) -> bool:
    """Whether the call was interrupted, or over before that moment."""
    sys.settrace(interrupt_at(moment))
    try:
        model(x).sum().backward()
    except (KeyboardInterrupt, Late):
        return True
    finally:
        sys.settrace(None)
    return False


model = nn.Sequential(nn.Sequential(nn.Identity()), nn.Linear(2, 2))
example = torch.ones(2)
expected = model(example)
probing.start(overhead=1e5, trace_rows=1 << 16)
model(example).sum().backward()
calls = 1
for moment in range(0, 10**6, int(sys.argv[1])):
    if not call_interrupted(model, example, moment):
        break
    result = model(example)
    result.sum().backward()
    assert torch.equal(result, expected)
    calls += 1
else:
    raise AssertionError("it never came to its end")
assert moment > 500, moment
process = probing.connect(os.getpid())
assert process.status().problems == (), process.status().problems
rows = {(row["stage"], row["module"], row["depth"]): row for row in process.query(ROWS).to_pylist()}
whole = {("backward", "Sequential", 0), ("forward", "Sequential", 0)}
inside = {("forward", "0", 1), ("forward", "0.0", 2), ("forward", "1", 1)}
told = {place for place, row in rows.items() if not row["is_open"]}
assert {place for place in told if place[:2] != ("backward", "1")} == whole | inside, rows
# What had ended before the interrupt came is on record, too.
assert all(rows[place]["n"] >= calls for place in whole | inside), (calls, rows)
print("done", flush=True)
time.sleep(600)
