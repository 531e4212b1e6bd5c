"""`probing diff RUN RUN` and `probing doctor --against RUN` on real runs of one script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.targets import DEADLINE_S, Target, start_program, wait_until

pytestmark = pytest.mark.torch

STEPS = ("--steps", "140")
SET_UP = {
    *("argument --batch", "argument --dtype", "argument --threads", "argument --seed"),
    *("configuration loader 0.batch_size", "configuration model.dtype"),
    *("torch num_threads", "seed torch.initial_seed"),
}


class Runs:
    """Runs of one script in one run directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: list[Target] = []

    def begin(self, *words: str) -> Target:
        """Start one; the folder that its output is in is its own."""
        cwd = self.home.parent / f"run-{len(self.started)}"
        cwd.mkdir()
        target = start_program("compared", *words, home=self.home, cwd=cwd)
        self.started.append(target)
        return target

    def ended(self, *words: str) -> Target:
        """One that has come to its end."""
        return wait_for_end(self.begin(*STEPS, *words))


def wait_for_end(target: Target) -> Target:
    """The same, once it has ended well."""
    assert target.process.wait(2 * DEADLINE_S) == 0, target.output
    return target


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """What this module's tests compare."""
    made = Runs(tmp_path_factory.mktemp("compared") / "home")
    yield made
    for target in made.started:
        target.reap()


@pytest.fixture(scope="module")
def twins(runs: Runs) -> tuple[Target, Target]:
    """Two runs of the same, side by side, so that whatever else the machine does meets both."""
    one, two = runs.begin(*STEPS), runs.begin(*STEPS)
    return wait_for_end(one), wait_for_end(two)


def diff(one: Target, two: Target, *words: str) -> dict[str, Any]:
    """What differs, as JSON."""
    done = one.run("diff", str(one.pid), str(two.pid), "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def findings(one: Target, two: Target) -> list[dict[str, Any]]:
    """What the doctor says of the second that it says for the sake of the first."""
    words = (str(two.pid), "doctor", "--against", str(one.pid), "--format", "json")
    done = one.run(*words)
    assert done.returncode == 0, done.stderr
    rules = {"slower-than-before", "more-memory-than-before", "loss-above-before", "other-set-up"}
    return [found for found in json.loads(done.stdout)["findings"] if found["rule"] in rules]


def test_identical_runs_are_no_alarm(twins: tuple[Target, Target]) -> None:
    """Nothing of the set-up differs, losses are the same to the bit, and nothing is called sure."""
    found = diff(*twins)
    assert found["differences"] == []
    assert [one for one in found["findings"] if one["certainty"] != "possible"] == []
    assert found["loss"]["first_other_step"] is None
    assert found["has_common_steps"]
    assert min(run["compared"] for run in found["runs"]) > 100
    assert {one["name"] for one in found["measures"]} >= {"step", "forward", "backward", "memory"}
    assert [one for one in findings(*twins) if one["certainty"] != "possible"] == []


@pytest.mark.nightly  # by how long its steps take, which a busy machine blurs
def test_a_module_that_sleeps_is_named(runs: Runs, twins: tuple[Target, Target]) -> None:
    """Also of a run that goes on, by both commands, with what was changed."""
    slow = runs.begin("--steps", "1000000", "--nap", "0.03")
    slow.wait_for_step(120)
    found = diff(twins[0], slow)
    (speed,) = [one for one in found["findings"] if one["rule"] == "slower-than-before"]
    assert "in module second" in speed["summary"]
    assert "argument --nap is 0.03, and was not given" in speed["summary"]
    assert [run["state"] for run in found["runs"]] == ["ended", "running"]
    told = next(one for one in findings(twins[0], slow) if one["rule"] == "slower-than-before")
    assert "argument --nap" in told["summary"]
    assert told["next"] == f"probing diff {twins[0].pid} {slow.pid}"
    slow.kill()
    text = twins[0].run(str(twins[0].pid), "diff", str(slow.folder.path))
    assert text.returncode == 0
    assert "argument --nap" in text.stdout
    assert "second forward" in text.stdout


def test_all_that_was_changed_is_named(runs: Runs) -> None:
    """Batch, type, threads and seed, as they were typed and as they came out."""
    changed = ("--batch", "32", "--dtype", "float64", "--threads", "2", "--seed", "5")
    plain, other = runs.begin("--steps", "20"), runs.begin("--steps", "20", *changed)
    found = diff(wait_for_end(plain), wait_for_end(other))
    assert {f"{one['kind']} {one['name']}" for one in found["differences"]} == SET_UP
    values = {one["name"]: (one["before"], one["after"]) for one in found["differences"]}
    assert values["loader 0.batch_size"] == ("8", "32")
    assert values["model.dtype"][1] == "float64"
    assert values["num_threads"] == ("1", "2")
    seen = "what they explain, or another set-up"  # unless the doctor had too little time
    wait_until(lambda: findings(plain, other), seen)
    page = other.run("diff", str(plain.pid), str(other.pid), "--format", "markdown")
    assert page.returncode == 0
    assert page.stdout.startswith("# ")
    assert "torch num_threads" in page.stdout
    kept = compared_in_history(plain, other)
    assert kept["differences"] == found["differences"]
    assert kept["loss"] == found["loss"]
    assert [run["compared"] for run in kept["runs"]] == [run["compared"] for run in found["runs"]]


def compared_in_history(one: Target, two: Target) -> dict[str, Any]:
    """What differs between two runs that were exported, told by parts of their names."""
    done = one.run("export", str(one.pid), str(two.pid), "kept")
    assert done.returncode == 0, done.stderr
    names = (f"{one.pid}-", f"{two.pid}-")
    refused = one.run("history", "diff", "kept", names[0], "no such run")
    assert refused.returncode == 2
    assert "there is no run called 'no such run': there are " in refused.stderr
    asked = one.run("history", "diff", "--format", "json", "kept", *names)
    assert asked.returncode == 0, asked.stderr
    found: dict[str, Any] = json.loads(asked.stdout)
    return found


@pytest.mark.nightly
def test_a_learning_rate_that_is_too_high_explains_the_loss(
    runs: Runs, twins: tuple[Target, Target]
) -> None:
    """The loss is higher at the same steps, and the rate is what is named."""
    other = runs.ended("--lr", "0.5")
    (loss,) = [f for f in findings(twins[0], other) if f["rule"] == "loss-above-before"]
    assert loss["certainty"] == "likely"
    assert "lr of optimizer is 0.5, and was 0.05" in loss["summary"]


@pytest.mark.nightly
def test_a_loader_that_lost_its_workers_is_named(runs: Runs) -> None:
    """The wait for data is longer, and the number of workers is what is named."""
    few, many = (runs.ended("--load", "0.004", "--workers", n) for n in ("0", "2"))
    told = next(one for one in findings(many, few) if one["rule"] == "slower-than-before")
    assert "the wait for data: num_workers of loader 0 is 0, and was 2" in told["summary"]


def test_what_cannot_be_compared_is_said(twins: tuple[Target, Target], runs: Runs) -> None:
    """One run, three runs, none of that number, one without steps, and a watch: a sentence each."""
    pid = str(twins[0].pid)
    for words, code in (
        (("diff", pid), 2),
        (("diff", pid, pid, pid), 2),
        (("diff", pid, "999999999"), 3),
        ((pid, "doctor", "--against", "999999999"), 3),
        ((pid, "doctor", "--against", pid, "--watch"), 2),
        (("-t", pid, "diff", "--format", "markdown"), 2),
        (("diff",), 2),
    ):
        done = twins[0].run(*words)
        assert done.returncode == code, (words, done.stderr)
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    short = runs.begin("--steps", "3")
    assert short.process.wait(DEADLINE_S) == 0
    found = diff(twins[0], short)
    assert "speed" in {one["what"] for one in found["not_looked_at"]}
    assert [one for one in found["findings"] if one["rule"] == "slower-than-before"] == []
