"""Recordings of what a real training allocates: complete, placed, and gone without a trace."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import probing
from probing.allocations import read_snapshot
from probing.client.recording_client import recording_status
from probing.reach.address import Address
from tests.harness.targets import DEADLINE_S, Target, program_path, start_program, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

KNOWN_BYTES = 1_234_567


class Recorded(NamedTuple):
    """What became of the one training of these tests.

    Attributes:
        said: What the commands said, in their order.
        snapshot: The file of the second recording.
        events: The rows of python.alloc_events then.
        blocks: The rows of python.alloc_blocks then.
        tensors: The rows of python.tensors right after.
        status: What `status` said.
        output: All that the program printed.
        at_step: The step that a further recording was to be of.
    """

    said: list[str]
    snapshot: Path
    events: list[dict[str, Any]]
    blocks: list[dict[str, Any]]
    tensors: list[dict[str, Any]]
    status: str
    threads: set[str]
    output: str
    at_step: int


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A training that was recorded with `--record`, and once more by `--snapshot` alone."""
    cwd = tmp_path_factory.mktemp("allocating")
    target = start_program("allocating", home=cwd / "home", cwd=cwd)
    try:
        yield _recorded(target)
    finally:
        target.reap()


def _recorded(target: Target) -> Recorded:
    target.wait_for_step(3)
    pid, patch = str(target.pid), pytest.MonkeyPatch()
    patch.setenv("PROBING_HOME", str(target.home))
    said = [_run(target, pid, "memory", "--record", "on", "--steps", "2")]

    address = Address(path=target.folder.socket)
    wait_until(lambda: recording_status(address, DEADLINE_S).state == "recorded", "its end")
    said.append(_run(target, pid, "memory", "--record", "off"))
    said.append(_run(target, pid, "memory", "--snapshot", "first.pickle"))
    said.append(_run(target, pid, "memory", "--snapshot", "second.pickle", "--steps", "3"))
    process = probing.connect(target.pid)
    events = process.query("SELECT * FROM python.alloc_events").to_pylist()
    blocks = process.query("SELECT * FROM python.alloc_blocks").to_pylist()
    tensors = process.query("SELECT * FROM python.tensors").to_pylist()
    threads = process.query("SELECT thread_name FROM python.threads").to_pylist()
    status = _run(target, pid, "status")
    at_step = _record_later(target, "third.pickle", address)
    _run(target, pid, "memory", "--snapshot", "fourth.pickle", "--when", "step % 7 = 0")
    late = target.run(pid, "memory", "--snapshot", "fifth.pickle", "--at-step", "3")
    assert "step 3 cannot be recorded any more" in late.stderr
    (target.cwd / "end").touch()
    target.wait_for_output("after")
    patch.undo()
    snapshot = target.cwd / "second.pickle"
    names = {row["thread_name"] for row in threads}
    return Recorded(said, snapshot, events, blocks, tensors, status, names, target.output, at_step)


def _record_later(target: Target, name: str, address: Address) -> int:
    """Record a step that is yet to come; returns which.

    The program stands still until the command is there, however long that takes.
    """
    (target.cwd / "halt").touch()
    target.wait_for_output("halted")
    at_step = target.step() + 20
    words = (str(target.pid), "memory", "--snapshot", name, "--at-step", str(at_step))
    with ThreadPoolExecutor(1) as pool:
        command = pool.submit(_run, target, *words)
        wait_until(
            lambda: command.done() or recording_status(address, DEADLINE_S).state == "waiting",
            "the command",
        )
        (target.cwd / "go").touch()
        command.result()
    return at_step


def _run(target: Target, *args: str) -> str:
    done = target.run(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_thread_of_the_agent_is_taken_for_the_program_s(recorded: Recorded) -> None:
    """What the agent does in threads of its own leaves none among those that are shown."""
    assert recorded.threads == {"MainThread"}


def test_what_lives_at_the_end_is_what_the_program_has(recorded: Recorded) -> None:
    """The blocks in use at the end are the storages of the program's own tensors, to the byte."""
    step = read_snapshot(recorded.snapshot.read_bytes()).marks[-1][0]
    line = re.search(rf"^alive {step} (.*)$", recorded.output, re.MULTILINE)
    assert line is not None
    alive = {int(address): size for address, size in json.loads(line[1]).items()}
    assert {row["address"]: row["bytes"] for row in recorded.blocks} == alive


def test_every_allocation_ends_or_lives(recorded: Recorded) -> None:
    """What is freed was in use, and what was made and not freed is what lives at the end."""
    live: dict[int, int] = {}
    unknown = 0
    for row in recorded.events:
        if row["action"] == "alloc":
            assert row["address"] not in live
            live[row["address"]] = row["bytes"]
        elif row["action"] == "free_completed":
            size = live.pop(row["address"], None)
            assert size in (None, row["bytes"])
            unknown += size is None
    young = {row["address"]: row["bytes"] for row in recorded.blocks if row["step"] is not None}
    assert live == young
    assert 0 < unknown < len(recorded.events) / 10, "only what is older was freed unmade"


def test_a_known_allocation_is_found_with_its_place(recorded: Recorded) -> None:
    """A tensor of known size, made each step, has its step, its line and the caller."""
    source = (program_path("allocating")).read_text().splitlines()
    line = next(n for n, text in enumerate(source, 1) if "torch.empty(KNOWN_BYTES" in text)
    made = [row for row in recorded.events if row["bytes"] == KNOWN_BYTES]
    made = [row for row in made if row["action"] == "alloc"]
    assert len(made) == 3
    assert [row["step"] - made[0]["step"] for row in made] == [0, 1, 2]
    for row in made:
        assert row["frame"] == f"{program_path('allocating')}:{line} hoard"
        assert f"{program_path('allocating')}" in row["frames"].splitlines()[1]
        assert (row["category"], row["module"], row["device"]) == ("other", None, "cpu")
    ages = [row["age_steps"] for row in recorded.blocks if row["bytes"] == KNOWN_BYTES]
    assert sorted(ages) == [1, 2, 3]


def test_a_tensor_that_lives_has_the_line_that_made_it(recorded: Recorded) -> None:
    """After a recording its steps' tensors have their line and their age, and no others do."""
    source = (program_path("allocating")).read_text().splitlines()
    line = next(n for n, text in enumerate(source, 1) if "torch.empty(REMEMBERED" in text)
    now = [row for row in recorded.tensors if row["moment"] == "now" and row["bytes"] == 77]
    made = [row for row in now if row["frame"] is not None]
    assert {row["frame"] for row in made} == {f"{program_path('allocating')}:{line} remember"}
    steps = sorted(row["step"] - row["age_steps"] for row in made)
    last = read_snapshot(recorded.snapshot.read_bytes()).marks[-1][0]
    assert set(steps) >= {last - 3, last - 2, last - 1}
    assert all(row["age_steps"] is not None for row in made)
    assert len(now) > len(made) + 1, "most were made when nobody looked"


def test_modules_and_categories_are_those_of_the_model(recorded: Recorded) -> None:
    """Activations and gradients have the module they belong to, and the optimizer's state, too."""
    forward = {(r["module"], r["bytes"]) for r in recorded.events if r["category"] == "activations"}
    assert {("0", 32 * 128 * 4), ("1", 32 * 128 * 4)} <= forward
    gradients = {(r["module"], r["bytes"]) for r in recorded.events if r["category"] == "gradients"}
    assert gradients == {("0", 32768), ("0", 512), ("2", 32768), ("2", 256)}
    states = [row for row in recorded.blocks if row["category"] == "optimizer_state"]
    assert sum(row["bytes"] for row in states) == 2 * (32768 + 512 + 32768 + 256) + 4 * 4
    assert {row["frame"] for row in states} == {None}, "older than the recording"


def test_torch_itself_reads_the_snapshot(recorded: Recorded) -> None:
    """Torch's own tools take the file: their sums over segments hold, and they draw the plot."""
    import torch.cuda._memory_viz as viz

    data = pickle.loads(recorded.snapshot.read_bytes())
    live = sum(row["bytes"] for row in recorded.blocks)
    assert sum(viz.calc_active(segment) for segment in data["segments"]) == live
    assert "total_allocated" in viz.segsum(data)
    assert "add_local_files" in viz.trace_plot(data)
    assert viz.trace(data).count("= MEM") + viz.trace(data).count("= seg_") > 100


def test_the_commands_say_what_is_recorded(recorded: Recorded) -> None:
    """Each says how it stands; the first snapshot takes what `--record` has, the next records."""
    waiting = "2 steps will be recorded, from the end of the next step on\n"
    assert recorded.said[0] in {waiting, "recording: 0 of 2 steps done\n"}, "steps go on meanwhile"
    first, second = recorded.said[-2:]
    steps = [re.match(r"(steps? [\d to]+),", text) for text in (first, second)]
    assert all(steps)
    assert "place in the program" in first
    assert ":22 hoard" not in first
    assert re.search(r"a recorded step took [\d.]+ m?s, one before [\d.]+ m?s", first)
    assert re.search(r"^allocations +off +python.alloc_events", recorded.status, re.MULTILINE)
    one = read_snapshot(recorded.snapshot.with_name("first.pickle").read_bytes())
    other = read_snapshot(recorded.snapshot.read_bytes())
    assert one.marks[-1][0] <= other.marks[0][0]
    assert len(other.marks) == 4


def test_a_step_is_waited_for(recorded: Recorded) -> None:
    """Just the step that was asked for is recorded; after a condition, those that follow."""
    folder = recorded.snapshot.parent
    third = read_snapshot((folder / "third.pickle").read_bytes())
    assert [step for step, _ in third.marks] == [recorded.at_step, recorded.at_step + 1]
    assert len(read_snapshot((folder / "fourth.pickle").read_bytes()).marks) == 4
    assert not (folder / "fifth.pickle").exists()


def test_nothing_is_left_behind(recorded: Recorded) -> None:
    """Afterwards torch is as before, no library has said a word, and no part file lies about."""
    before = re.search(r"^before (.*)$", recorded.output, re.MULTILINE)
    after = re.search(r"^after (.*)$", recorded.output, re.MULTILINE)
    assert before is not None
    assert after is not None
    assert before[1] == after[1]
    words = {line.split(" ", 1)[0] for line in recorded.output.splitlines()}
    assert words == {"alive", "before", "halted", "after"}
    folder = recorded.snapshot.parent
    assert not [path for path in folder.rglob("*") if path.suffix in {".new", ".part"}]
