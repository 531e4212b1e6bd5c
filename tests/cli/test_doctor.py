"""`probing doctor` on real trainings: what is said of one with a fault, and of one without."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from probing.errors import TimedOut
from tests.harness.doctor import examine, sure
from tests.harness.targets import Target, wait_until

pytestmark = pytest.mark.torch

Start = Callable[..., Target]


def test_a_healthy_training_has_nothing(ailing: Callable[[str, int], Target]) -> None:
    """Nothing certain or likely is said, subjects are healthy, and what is not known is told."""
    target = ailing("well", 120)
    report = examine(target, "--check", "likely")
    assert sure(report) == [], json.dumps(report["findings"])
    assert {"progress", "loss", "gradients", "parameters", "threads and processes"} <= set(
        report["healthy"]
    )
    missed = {rule for one in report["not_looked_at"] for rule in one["rules"]}
    assert {"tf32-off", "synchronises", "host-bound"} <= missed
    assert report["steps"] >= 100
    hurried = examine(target, "--timeout", "1")  # two seconds of samples do not fit in
    assert "own-code" in [name for missed in hurried["not_looked_at"] for name in missed["rules"]]
    blind = target.run("--timeout", "0.001", str(target.pid), "doctor", "--check", "likely")
    assert blind.returncode == TimedOut.exit_code
    assert blind.stdout.startswith(f"Too little could be looked at in process {target.pid} to say")
    assert "not looked at: " in blind.stdout
    assert "a longer --timeout gives it more" in blind.stdout


@pytest.mark.parametrize(
    ("way", "rule", "step"),
    [
        ("vanishing", "vanishing-gradients", 60),
        ("dead", "zero-gradients", 60),
        ("not-zeroed", "not-zeroed", 150),
        ("reseeded", "reseeded", 60),
    ],
)
def test_a_fault_of_the_numbers_is_named(
    ailing: Callable[[str, int], Target], way: str, rule: str, step: int
) -> None:
    """The fault is likely, and the report says what follows from it and what to type."""
    target = ailing(way, step)
    report = examine(target)
    assert rule in sure(report), json.dumps(report)
    finding = next(found for found in report["findings"] if found["rule"] == rule)
    assert finding["evidence"]
    assert finding["fix"]
    assert f"probing {target.pid} " in finding["next"]


def test_what_piles_up_is_named(ailing: Callable[[str, int], Target]) -> None:
    """Descriptors, threads, children and files in shared memory that come one by one are found."""
    target = ailing("piling", 640)
    report = examine(target)
    assert {"descriptors", "threads", "processes", "shared-memory-files"} <= set(sure(report))
    words = " ".join(finding["summary"] for finding in report["findings"])
    assert "trace.log" in words
    assert "upload-N" in words


def test_a_hang_comes_first_and_the_exit_code_tells(program: Start) -> None:
    """A training that waits for ever is told, as text and as Markdown."""
    target = program("hung", "lock")
    target.wait_for_output("ready")

    def hangs() -> subprocess.CompletedProcess[str] | None:
        done = target.run(str(target.pid), "doctor", "--check", "certain")
        return done if done.returncode == 1 else None

    done = wait_until(hangs, "a hang that is certain")
    first = done.stdout.splitlines()[0]
    assert first.startswith(" 1 ")
    assert first.endswith("certain")

    def told_as_markdown() -> bool:
        markdown = target.run(str(target.pid), "doctor", "--format", "markdown").stdout
        assert markdown.startswith("# What is wrong with")
        return "**certain**, `hang`" in markdown

    wait_until(told_as_markdown, "the same as Markdown")


def test_a_dead_producer_is_named_with_its_error(program: Start) -> None:
    """A training that waits for what nobody brings any more is told with the thread that did."""
    target = program("fed")
    target.wait_for_step(30)

    def hangs() -> str:
        found = {one["rule"]: one for one in examine(target)["findings"]}
        is_sure = "hang" in found and found["hang"]["certainty"] == "certain"
        return str(found["hang"]["summary"]) if is_sure else ""

    words = wait_until(hangs, "a hang that is certain")
    assert "waiting for an item from a queue" in words
    assert "its thread producer ended with an unhandled KeyError: 30" in words
    assert "fed.py:18 in produce" in words


def test_a_killed_training_is_told_from_its_record(ailing: Callable[[str, int], Target]) -> None:
    """After SIGKILL the end is the first finding, and rules that need an answer say so."""
    target = ailing("well", 30)
    target.kill(signal.SIGKILL)
    report = examine(target)
    assert report["findings"][0]["rule"] == "ended"
    missed = {name for one in report["not_looked_at"] for name in one["rules"]}
    assert {"no-optimizer", "float64"} <= missed
    assert "loss" in report["healthy"]


def test_a_process_that_is_not_there(training: Target) -> None:
    """One sentence and an exit code, no traceback."""
    done = training.run("999999", "doctor")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
