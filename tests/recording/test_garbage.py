"""What recording leaves behind in a training that goes on and on: nothing, step after step.

What only the collector can free waits for it for hours in a process of a million objects, and
Python's allocator takes ever more memory meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import probing
from tests.harness.targets import Target, start_training, wait_until

pytestmark = pytest.mark.torch

_STEPS = 140
"""The budget of recording is planned anew each 64 steps."""
_BEGIN = "import gc as _gc; _gc.collect(); _gc.disable(); print(_gc.isenabled()); 1 / 0"
_END = """
import gc as _gc, json as _json
try:
    _gc.set_debug(_gc.DEBUG_SAVEALL)
    _gc.collect()
finally:
    _gc.set_debug(0)
    _gc.enable()
_kinds = sorted({
    f"{_cls.__module__}.{_cls.__qualname__}" for _cls in map(type, _gc.garbage)
} | {
    f"{_made.__module__}.{_made.__qualname__}" for _made in _gc.garbage
    if hasattr(_made, "__code__") and isinstance(getattr(_made, "__module__", None), str)
})
_gc.garbage.clear()
_all = [_d for _d in _gc.get_objects() if type(_d) is dict]
_kept = [len(_d["begun"]) for _d in _all if type(_d.get("begun")) is set]
print(_json.dumps([_kinds, _kept]))
"""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], list[int]]]:
    """What recording has left for the collector, by kind, and of the last step's graph, by thread.

    The latter is looked at as a step has ended.
    """
    cwd = tmp_path_factory.mktemp("garbage")
    training = start_training("--pause", "0.02", home=cwd / "home", cwd=cwd)
    try:
        yield _collected(training)
    finally:
        training.reap()


def _collected(training: Target) -> tuple[list[str], list[int]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PROBING_HOME", str(training.home))
        process = probing.connect(training.pid)
        told: list[Any] = []
        try:
            assert process.eval(_BEGIN).output == "False\n"
            until = training.step() + _STEPS
            wait_until(lambda: training.step() >= until, f"step {until}")
        finally:
            ended = process.eval(_END, timeout_s=60.0)
            assert ended.error is None, ended.error
            told = json.loads(ended.output)
    return told[0], told[1]


def test_recording_leaves_the_collector_nothing(left: tuple[list[str], list[int]]) -> None:
    """What it makes at each step, as it plans anew and for an eval goes without the collector."""
    kinds, _ = left
    assert "builtins.tuple" in kinds, "the training's own checkpoints leave some"
    assert [kind for kind in kinds if kind.startswith(("asyncio.", "probing."))] == []


def test_a_pass_that_has_ended_is_kept_in_mind_no_more(left: tuple[list[str], list[int]]) -> None:
    """Of the nodes that it went through not even the numbers are."""
    _, kept = left
    assert kept
    assert set(kept) == {0}
