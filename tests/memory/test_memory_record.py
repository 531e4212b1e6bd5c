"""Memory of one real process: its rows, its host memory, and the one-line report of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="the program that is watched trains with it")

import probing
from probing.cli.reports.memory_cleaning import clean_and_show
from probing.cli.reports.memory_line import newest_moment, show_line, with_peak_since
from probing.cli.target import Target as Aim
from probing.client.base import Process
from probing.diagnosis.memory.memory_cleaning import clean_memory
from tests.harness.targets import Target, start_program, stop, wait_until
from tests.memory.programs.in_memory import BATCHES, COPIED_BYTES, SHARED_BYTES, STEPS
from tests.memory.programs.littering import GARBAGE_BYTES

pytestmark = pytest.mark.torch

CLOSE = 8 << 20  # the kernel counts pages per processor and adds them up now and then


SETTINGS = {"PROBING": "1", "PROBING_OVERHEAD": "1000000"}
"""Every step of a model as small as this has rows only where these may cost what they like."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The program, at its end."""
    cwd = tmp_path_factory.mktemp("in_memory")
    made = start_program("in_memory", home=cwd / "home", cwd=cwd, **SETTINGS)
    made.wait_for_output("ready")
    yield made
    made.reap()


@pytest.fixture
def process(target: Target, monkeypatch: pytest.MonkeyPatch) -> Process:
    """The way to ask it."""
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    return probing.connect(target.pid)


def rows_of(process: Process, sql: str) -> list[dict[str, Any]]:
    """What a query answers."""
    return process.query(sql).to_pylist()


def test_the_resident_set_grows_by_what_is_copied_and_shrinks_by_what_is_freed(
    process: Process,
) -> None:
    """The row of a mark shows the process itself, not the machine."""
    rows = rows_of(
        process,
        "SELECT label, resident_bytes FROM python.memory WHERE phase = 'mark' ORDER BY seq",
    )
    assert [row["label"] for row in rows] == ["before copy", "with copy", "freed"]
    before, copied, freed = (row["resident_bytes"] for row in rows)
    assert abs(copied - before - COPIED_BYTES) < CLOSE
    assert abs(freed - before) < CLOSE


def test_every_phase_of_every_step_has_its_row(process: Process) -> None:
    """The baseline first, then three rows per micro-batch and one per step, in order of time."""
    assert process.status().problems == ()
    rows = rows_of(
        process,
        "SELECT step, micro_batch, phase, time_ns FROM python.memory WHERE phase != 'mark'"
        " ORDER BY seq",
    )
    of_batch = ("before_forward", "after_forward", "after_backward")
    expected: list[tuple[int, int | None, str]] = [(0, None, "attach")]
    for step in range(STEPS):
        expected += [(step, batch, phase) for batch in range(BATCHES) for phase in of_batch]
        expected.append((step, None, "after_step"))
    assert [(row["step"], row["micro_batch"], row["phase"]) for row in rows] == expected
    times = [row["time_ns"] for row in rows]
    assert times == sorted(times)


def test_what_it_costs_is_told(process: Process) -> None:
    """The source has a line of its own, and its share is in what a step costs."""
    (row,) = rows_of(process, "SELECT * FROM probing.sources WHERE source = 'memory'")
    assert (row["state"], row["table"], row["faults"]) == ("on", "python.memory", 0)
    (cost,) = rows_of(process, "SELECT max(cost_s) AS cost_s FROM probing.overhead")
    assert 0 < row["cost_s"] < cost["cost_s"]


def test_host_memory_tells_processes_apart_and_needs_no_help_of_theirs(
    process: Process, target: Target
) -> None:
    """Trainer and worker, with private and shared parts, also while the trainer is stopped."""
    answered = process.live("host_memory")
    stop(target.pid)
    try:
        rows = rows_of(process, "FROM python.host_memory")
    finally:
        os.kill(target.pid, signal.SIGCONT)
    roles = answered.columns.index("role")
    assert [row["role"] for row in rows] == [row[roles] for row in answered.rows]
    trainer, *others = rows
    assert (trainer["pid"], trainer["role"]) == (target.pid, "trainer")
    assert trainer["shm_bytes"] >= SHARED_BYTES
    assert "data_worker" in [row["role"] for row in others]
    for row in rows:
        assert row["private_bytes"] <= row["proportional_bytes"] <= row["resident_bytes"]
        assert row["private_bytes"] + row["shared_bytes"] <= row["resident_bytes"] + CLOSE
    assert sum(row["shm_bytes"] for row in others) < SHARED_BYTES, "each file counts once"


def test_the_most_since_an_earlier_line_is_what_the_record_has_seen(process: Process) -> None:
    """A copy that came and went between two lines is in the second one; a first line has none."""
    marks = rows_of(process, "FROM python.memory WHERE phase = 'mark' ORDER BY seq")
    before, copied, freed = marks
    now = newest_moment(process)
    assert with_peak_since(process, now, None) == now
    assert now is not None
    with_copy = with_peak_since(process, now, before)
    without = with_peak_since(process, now, copied)
    assert with_copy is not None
    assert without is not None
    assert with_copy["since_bytes"] == copied["resident_bytes"]
    assert without["since_bytes"] < copied["resident_bytes"] - CLOSE, "it has gone"
    assert without["since_bytes"] >= freed["resident_bytes"] - CLOSE


def test_the_line_is_the_newest_row_of_a_live_and_of_an_ended_process(
    program: Callable[..., Target],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the words of see_memory_usage; watching ends by itself, a process or a whole job."""
    target = program("in_memory", PROBING_JOB="lines", RANK="0", WORLD_SIZE="1", **SETTINGS)
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    aim = Aim(endpoints=(str(target.pid),))
    assert show_line(aim) == 0
    alive = capsys.readouterr().out
    assert alive.startswith("step 2 after_step | cpu | MA -  Max_MA -  CA -  Max_CA -  NV - | CPU ")
    assert alive.count("\n") == 1
    target.kill()
    wait_until(lambda: not target.folder.is_alive(), "its end")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) < 9, "it goes on though nobody runs"

    aim = Aim(endpoints=(str(target.folder.path),))
    assert show_line(aim, every_s=3.0, sleep=sleep) == 0
    assert capsys.readouterr().out == alive
    assert waits == [3.0]
    assert show_line(Aim(endpoints=("job:lines",)), every_s=3.0, sleep=sleep) == 0
    assert capsys.readouterr().out == f"rank 0: {alive}"
    assert waits == [3.0, 3.0]


def test_garbage_is_collected_at_a_steps_end_and_what_that_freed_is_told(
    program: Callable[..., Target],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A tensor in a cycle is gone after `--gc`, by the process's own figures; training goes on."""
    littering = program("littering")
    littering.wait_for_step(3)
    monkeypatch.setenv("PROBING_HOME", str(littering.home))
    process = probing.connect(littering.pid)
    cleaned = clean_memory(process, ("gc",))
    assert (cleaned.before["label"], cleaned.after["label"]) == ("before gc", "after gc")
    assert abs((cleaned.freed("resident_bytes") or 0) - GARBAGE_BYTES) < CLOSE
    assert cleaned.freed("allocated_bytes") is None, "the CPU has no allocator of torch's"
    assert (cleaned.garbage or 0) >= 1
    aim = Aim(endpoints=(str(littering.pid),))
    assert clean_and_show(aim, ("gc", "empty_cache"), out=True) == 0
    before, after, freed = capsys.readouterr().out.splitlines()
    assert " before gc empty_cache | cpu | " in before
    assert " after gc empty_cache | cpu | " in after
    assert freed.startswith("freed: ")
    littering.wait_for_step(littering.step() + 3)
