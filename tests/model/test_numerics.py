"""Values that are not finite: who made them, and a training that does not notice the search."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import probing
from probing.diagnosis.arming import Watch, watch_numbers
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.torch

Start = Callable[..., Target]

FINDINGS = {
    "log": ("body.1", "forward", "producer", "output", "nan_count", 48),
    "overflow": ("body.0", "forward", "producer", "output", "inf_count", None),
    "data": ("Net", "forward", "given", "input", "nan_count", 1),
    "weight": ("last", "forward", "producer", "parameter", "nan_count", 1),
    "between": ("Net", "forward", "producer", "intermediate", "inf_count", None),
    "loss": (None, "forward", "producer", "loss", "inf_count", 1),
    "root": ("body.2", "backward", "producer", "grad", None, None),
    "between_backward": ("Net", "backward", "producer", "intermediate", None, None),
    "loss_backward": ("Net", "backward", "given", "grad", None, None),
    "compiled": ("OptimizedModule", "forward", "producer", "parameter", "nan_count", 1),
    "compiled_in_place": ("Net", "forward", "producer", "parameter", "nan_count", 1),
}
"""By way: module, stage, role and kind of the first row; a count of it, where that is certain."""


@pytest.fixture
def start(program: Start, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the program in one of its ways, and waits until it trains."""

    def begin(*args: str) -> Target:
        target = program("nonfinite", *args)
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        target.wait_for_output("ready")
        return target

    return begin


def end(target: Target) -> list[str]:
    """Let it end; returns its losses, and makes sure that no hook is left."""
    (target.cwd / "end").touch()
    assert target.process.wait(DEADLINE_S) == 0, target.output
    assert "hooks 0\n" in target.output
    found = re.search(r"^losses (.*)$", target.output, re.MULTILINE)
    assert found is not None
    losses: list[str] = json.loads(found[1])
    return losses


def watch(target: Target) -> Watch:
    """Watch the program go wrong."""
    go = target.cwd / "go"
    process = probing.connect(target.pid)
    return watch_numbers(
        process, 1000, timeout_s=DEADLINE_S, tell=lambda a: go.touch() if a.done else None
    )


@pytest.mark.parametrize("way", FINDINGS)
def test_the_first_to_make_them_is_named(way: str, start: Start) -> None:
    """In each way of going wrong the first row names the module, stage and kind; hooks are gone."""
    target = start(way)
    found = watch(target)
    module, stage, role, what, count, number = FINDINGS[way]
    first: dict[str, Any] = found.rows[0]
    assert (first["module"], first["stage"], first["role"], first["what"]) == (
        module,
        stage,
        role,
        what,
    ), found.rows
    if count is not None:
        assert first[count] == number if number is not None else first[count] > 0
    assert {row["step"] for row in found.rows} == {found.armed.last_step}
    assert found.armed.state == "over"
    assert bool(found.armed.notes) == way.startswith("compiled")
    end(target)


def test_weights_that_were_lost_before_are_no_modules_doing(start: Start) -> None:
    """A watch that comes too late says so, and since when; `status` and `list` know it, too."""
    target = start("weight")
    process = probing.connect(target.pid)
    (target.cwd / "go").touch()
    lost = "SELECT min(step) AS step, count(*) AS n FROM python.steps WHERE NOT loss_finite"
    wait_until(lambda: process.query(lost).to_pylist()[0]["n"] > 2, "steps with a NaN loss")
    since = process.query(lost).to_pylist()[0]["step"]
    done = target.run(str(target.pid), "arm", "nan", "--steps", "5")
    assert "the weights were not finite before step" in done.stdout, done.stdout
    assert "no module of this step is to blame" in done.stdout
    assert f"the loss has been NaN since step {since}" in done.stdout
    rows = process.query("FROM python.numerics ORDER BY seq").to_pylist()
    assert (rows[0]["what"], rows[0]["role"]) == ("parameter", "given")
    assert "producer" not in {row["role"] for row in rows}
    assert f"the loss has been NaN since step {since}\n" in target.run("list").stderr
    status = target.run(str(target.pid), "status")
    assert f"problem: the loss has been NaN since step {since}\n" in status.stdout
    end(target)


def test_a_statistic_that_was_lost_before_is_named(start: Start) -> None:
    """A buffer that keeps NaN is told, also where the module makes a new tensor of it each time."""
    target = start("statistic")
    process = probing.connect(target.pid)
    (target.cwd / "go").touch()
    lost = "SELECT count(*) AS n FROM python.steps WHERE NOT loss_finite"
    wait_until(lambda: process.query(lost).to_pylist()[0]["n"] > 2, "steps with a NaN loss")
    done = target.run(str(target.pid), "arm", "nan", "--steps", "5")
    assert "buffers of the model were not finite before step" in done.stdout, done.stdout
    assert "mean of body.3 (Center)" in done.stdout
    rows = process.query("FROM python.numerics ORDER BY seq").to_pylist()
    first = rows[0]
    assert (first["what"], first["role"], first["tensor"]) == ("buffer", "given", "mean")
    assert "producer" not in {row["role"] for row in rows}
    end(target)


def test_losses_are_the_same_to_the_last_bit(start: Start) -> None:
    """A training that is watched computes what one that is left alone does; nothing is found."""
    target = start("well")
    process = probing.connect(target.pid)
    found = watch_numbers(process, 5, timeout_s=DEADLINE_S)
    assert (found.armed.done, found.armed.found, found.rows) == (5, 0, ())
    losses = end(target)
    alone = start("well", str(len(losses)))
    assert end(alone) == losses


def test_the_command_says_it_in_a_sentence(start: Start) -> None:
    """`arm nan` without a finding says so; `--no-wait` and `--off` begin and end it."""
    target = start("well")
    done = target.run(str(target.pid), "arm", "nan", "--steps", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "no module's output was non-finite in 2 steps\n"
    pause = target.cwd / "pause"
    pause.touch()  # a watch may be over by the time that a command has begun
    done = target.run(str(target.pid), "arm", "nan", "--steps", "1000", "--no-wait")
    assert done.returncode == 0, done.stderr
    again = target.run(str(target.pid), "arm", "nan")
    assert again.returncode == 4
    assert "armed already" in again.stderr
    assert target.run(str(target.pid), "arm", "nan", "--off").returncode == 0
    pause.unlink()
    process = probing.connect(target.pid)
    wait_until(lambda: process.armed().armed[0].state == "over", "the end")
    end(target)


def test_an_agent_that_leaves_takes_its_hooks_along(start: Start) -> None:
    """After `detach` in the midst of a watch no module has a hook."""
    target = start("well")
    process = probing.connect(target.pid)
    process.arm("nan", 1000)
    wait_until(lambda: process.armed().armed[0].done, "a watched step")
    process.detach()
    wait_until(lambda: target.find_folder() is None, "the agent to leave")
    end(target)
