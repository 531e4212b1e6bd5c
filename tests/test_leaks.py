"""What keeps memory is found in a real training, down to one number per step, and only that.

All tests share one process, whose way of training is changed from outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import probing
from probing.leaking import find_leaks
from probing.leaks.report import LeakReport
from tests.support import DEADLINE_S, Target, start_program

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The program that trains in the way that it is told."""
    cwd = tmp_path_factory.mktemp("leaks")
    target = start_program("keeping", "plain", home=cwd / "home", cwd=cwd)
    target.wait_for_output("ready")
    yield target
    target.reap()


@pytest.fixture(autouse=True)
def own_home(keeping: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `probing.connect` find the program."""
    monkeypatch.setenv("PROBING_HOME", str(keeping.home))


def watch(target: Target, way: str, steps: int = 8) -> LeakReport:
    """Have it train in a way, and watch that."""
    process = probing.connect(target.pid)
    process.eval(f"ways[:] = [{way!r}]")
    target.wait_for_step(target.step() + 3)  # the way before has let go of what it held
    return find_leaks(process, steps, timeout_s=DEADLINE_S)


@pytest.mark.parametrize("way", ["plain", "accumulation", "ema", "bounded", "evaluation"])
def test_a_healthy_training_has_no_leak(keeping: Target, way: str) -> None:
    """Accumulated gradients, averaged weights, a bounded history and evaluations are no leak."""
    report = watch(keeping, way)
    assert report.failure is None
    assert report.steps == 8
    assert report.findings == ()
    assert report.live.kind == "flat"


def test_a_history_with_a_limit_is_no_leak_while_it_fills(keeping: Target) -> None:
    """A deque that still fills up is told as what it is, with its limit."""
    process = probing.connect(keeping.pid)
    process.eval("last_losses = deque(maxlen=1_000_000)")
    report = watch(keeping, "bounded")
    process.eval("last_losses = deque(maxlen=12)")
    (found,) = report.findings
    assert (found.mistake, found.is_leak, found.rows[0]["bound"]) == ("bounded", False, 1_000_000)


def test_a_number_kept_per_step_is_found(keeping: Target) -> None:
    """One kept scalar is 4 bytes and one tensor per step, exactly, with the line that keeps it."""
    report = watch(keeping, "kept_loss")
    (found,) = report.findings
    assert (found.mistake, found.bytes_per_step, found.tensors_per_step) == ("numbers", 4.0, 1.0)
    assert (report.live.kind, report.live.slope, report.live.r2) == ("slope", 4.0, 1.0)
    (row,) = found.rows
    assert (row["holder"], row["path"], row["place"]) == ("global", "kept_numbers[...]", "__main__")
    with open(row["file"], encoding="utf-8") as source:
        assert "kept_numbers.append(" in source.readlines()[row["lineno"] - 1]


def test_a_kept_graph_is_found_to_the_byte(keeping: Target) -> None:
    """A loss kept with its graph costs what torch's own hooks say that its graph saves."""
    result = probing.connect(keeping.pid).eval("print(saved_by_one_graph(trainer))")
    saved = json.loads(result.output)
    report = watch(keeping, "kept_graph")
    assert len(report.findings) == 1, report.findings
    (found,) = report.findings
    assert found.mistake == "loss"
    assert found.bytes_per_step == saved["bytes"]
    assert found.tensors_per_step == saved["tensors"]
    assert {row["holder"] for row in found.rows} == {"global", "graph"}
    assert {row["path"] for row in found.rows} == {"all_losses[...]"}
    growth = {each.category: each.last_bytes - each.first_bytes for each in report.categories}
    assert sum(growth.values()) == 8 * saved["bytes"]
    assert growth["activations"] > 7 * (saved["bytes"] - 4096)


@pytest.mark.parametrize(
    ("way", "mistake", "holder", "path"),
    [
        ("outputs", "outputs", "global", "trainer.history['out'][...]"),
        ("batches", "batches", "global", "trainer.batches[...]"),
        ("tracebacks", "traceback", "traceback", "trainer.errors[...]"),
        ("closure", "tensors", "closure", "seen[...]"),
        ("hooks", "hooks", "attribute", "0.forward_hooks"),
        ("modules", "modules", None, None),
        ("cycles", "cycle", "cycle", None),
    ],
)
def test_a_mistake_has_its_name(
    keeping: Target, way: str, mistake: str, holder: str | None, path: str | None
) -> None:
    """Each of the common mistakes is told by name, with who refers to what is kept."""
    report = watch(keeping, way)
    (found,) = report.findings
    assert found.mistake == mistake
    assert found.is_leak
    if holder is not None:
        assert {(row["holder"], row["path"]) for row in found.rows} == {(holder, path)}


def test_gradients_that_are_never_zeroed_are_told(keeping: Target) -> None:
    """A missing zero_grad is named, and is no leak: gradients keep their place."""
    report = watch(keeping, "unzeroed")
    (found,) = report.findings
    assert (found.mistake, found.is_leak) == ("zero_grad", False)
    assert report.leaks == ()


def test_the_command_shows_it_and_leaves_nothing_behind(keeping: Target) -> None:
    """The screen and the JSON say the same, exit with 0, and nothing stays in the training."""
    process = probing.connect(keeping.pid)
    process.eval("ways[:] = ['kept_loss']")
    shown = keeping.run("leak", "-t", str(keeping.pid))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("leak in 8 steps")
    assert "kept_numbers" in shown.stdout
    asked = keeping.run("leak", "-t", str(keeping.pid), "--steps", "3", "--format", "json")
    assert json.loads(asked.stdout)["steps"] == 3
    left = process.eval(
        "import gc; print(sum(type(thing).__name__ in {'_Node', 'Storage'}"
        " for thing in gc.get_objects()))"
    )
    assert left.output == "0\n"
