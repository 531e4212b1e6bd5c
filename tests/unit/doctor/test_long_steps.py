"""Where the time of long steps goes, of which there are few on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from tests.unit.doctor.made import Facts, facts, signs, steps

pytestmark = pytest.mark.anypython

SCRIPT = """\
class Replay:
    def update(self, index, error):
        for i in range(len(index)):
            slot = index[i].item()
            self.priority[slot] = min(abs(error[i].item()), 2.0) + 0.01

def main():
    for batch in batches:
        loss = model(batch)
        total += loss.item()
        score = simulate(batch)
"""
LINES = {text.strip(): number for number, text in enumerate(SCRIPT.splitlines(), 1)}
SLOT, PRIORITY, LOGS, SIMULATES, CALLS = (
    next(n for text, n in LINES.items() if text.startswith(begin))
    for begin in ("slot", "self.priority", "total", "score", "loss = model")
)
LONG = {"duration": 4.0, "forward_s": 0.04, "backward_s": 0.04, "optimizer_s": 0.02,
        "other_s": 3.88, "device_s": 3.9}  # fmt: skip
MODULE = "_call_impl (/x/site-packages/torch/nn/modules/module.py:1700)"


@pytest.fixture
def script(tmp_path: Path) -> str:
    """The file of a program."""
    path = tmp_path / "lander.py"
    path.write_text(SCRIPT)
    return str(path)


def made(
    script: str,
    places: dict[int, int],
    count: int = 7,
    *,
    below: str = "",
    on_device: float = -1.0,
    **columns: Any,
) -> Facts:
    """A training with few steps, whose thread was at lines of `update` or `main` so often."""
    outer = f"main ({script}:{CALLS})"
    inner = [below] if below else []
    stacks = [
        (("MainThread", outer, f"Replay.update ({script}:{line})", *inner), times)
        if line < CALLS
        else (
            ("MainThread", f"{'main' if line < 50 else 'reset'} ({script}:{line})", *inner),
            times,
        )
        for line, times in places.items()
    ]
    timed = [{"step": 2, "stage": "forward", "depth": 0, "device_s": on_device}]
    return facts(
        {"steps": steps(count, **LONG | columns), "device_times": timed if on_device >= 0 else []},
        stacks=[(tuple(frames), times) for frames, times in stacks],
    )


def test_a_loop_that_waits_for_the_device_again_and_again(script: str) -> None:
    """Its lines are named with how long steps take; each waits for what was queued between them."""
    (sign,) = signs("few-long-steps", made(script, {SLOT: 50, PRIORITY: 45, LOGS: 5}))
    assert sign.certainty == "possible"
    assert sign.summary == (
        "Steps take 4 s each, and 97 % of that is code of the script outside of the model and the"
        " optimizer, most at lander.py:4 in Replay.update: `slot = index[i].item()`"
    )
    assert sign.evidence == (
        "6 steps took 4 s to 4 s",
        "50 % of the samples were at lander.py:4 in Replay.update",
        "45 % of the samples were at lander.py:5 in Replay.update",
    )
    (sign,) = signs("few-long-steps", made(script, {LOGS: 95}, on_device=0.2))
    assert "lander.py:10 in main" in sign.summary


def test_other_code_and_data_are_told_too(script: str) -> None:
    """What the script computes itself, and the batch that it waits for."""
    (sign,) = signs("few-long-steps", made(script, {SIMULATES: 90}, 4, device_s=None))
    assert "`score = simulate(batch)`" in sign.summary
    (sign,) = signs("few-long-steps", made(script, {SIMULATES: 90}, other_s=0, data_wait_s=3.88))
    assert "97 % of that is the wait for data" in sign.summary


@pytest.mark.parametrize(
    ("places", "columns"),
    [
        ({LOGS: 95}, {}),  # one line waits for all of the step's work
        ({LOGS: 95}, {"on_device": 3.8}),
        ({SLOT: 50, PRIORITY: 45}, {"on_device": 3.8}),
        ({CALLS: 95}, {"below": MODULE}),
        ({SIMULATES: 30, SLOT: 30, 99: 30}, {}),
        ({SIMULATES: 95}, {"other_s": 1.0, "forward_s": 2.9}),
        ({SIMULATES: 95}, {"count": 30}),
    ],
)
def test_a_healthy_training_with_long_steps(
    script: str, places: dict[int, int], columns: dict[str, Any]
) -> None:
    """The device works, the model computes, no line stands out, or other rules can look."""
    assert signs("few-long-steps", made(script, places, **columns)) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"duration": lambda step: (40.0, 12.0, 4.0, 0.3, 0.3, 0.3, 0.3)[step]},
        {"duration": 0.5},
        {"count": 3},
        {"count": 0},
    ],
)
def test_the_start_of_a_training(script: str, columns: dict[str, Any]) -> None:
    """Compilation and loading make first steps long; nothing is looked at, and that is said."""
    with pytest.raises(NotLookedAt, match="8 are needed"):
        signs("few-long-steps", made(script, {SIMULATES: 95}, **columns))
