"""Out-of-memory errors: real ones are recorded, others are not, the training is the same."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from probing.linux.cgroup import NEAR_LIMIT
from probing.postmortem.endings import LAST_MEMORY, judge
from tests.harness.targets import DEADLINE_S, Target, program_path, start_program, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

CAUGHT = ("recovered", "caught_backward", "caught_step", "told_by_a_device", "other_errors")
LIMIT = 900 << 20
Rows = list[dict[str, Any]]


def end(cwd: Path, *ways: str, **extra: str) -> Target:
    """Run the program to its end."""
    cwd.mkdir()
    target = start_program("ooms", *ways, home=cwd / "home", cwd=cwd, **extra)
    try:
        target.process.wait(DEADLINE_S)
    finally:
        target.reap()
    return target


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A process that recovered from errors of every kind, and died of one in its loss."""
    return end(tmp_path_factory.mktemp("ooms") / "with", *CAUGHT, "loss")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A process that has failed in its backward pass and goes on."""
    yield from _failed(tmp_path_factory.mktemp("live"))


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Target]:
    """Another one, to be killed."""
    yield from _failed(tmp_path)


def _failed(cwd: Path) -> Iterator[Target]:
    target = start_program("ooms", "caught_backward", home=cwd / "home", cwd=cwd)
    target.wait_for_output("ready")
    yield target
    target.reap()


def rows_of(target: Target, sql: str) -> Rows:
    """What the record of a process says, by its run folder."""
    asked = target.run(str(target.folder.path), "query", sql, "--format", "json")
    assert asked.returncode == 0, asked.stderr
    rows: Rows = json.loads(asked.stdout)
    return rows


def seen_of(target: Target) -> tuple[int | None, str, list[str], str]:
    """Exit code, losses, the script's own lines in the traceback, and its last line."""
    lines = target.output.splitlines()
    losses = next(line for line in lines if line.startswith("["))
    own = [line for line in lines if f'{program_path("ooms")}"' in line]
    return target.process.returncode, losses, own, lines[-1]


def test_the_training_is_the_same(ended: Target, tmp_path: Path) -> None:
    """Exit code, losses, traceback and message are those of a run without the agent."""
    without = end(tmp_path / "without", *CAUGHT, "loss", PROBING="0")
    assert without.find_folder() is None
    assert seen_of(ended) == seen_of(without)
    code, losses, own, last = seen_of(ended)
    assert code == 1
    assert len(json.loads(losses)) == 3 + 6
    assert len(own) == 2
    assert last.startswith("RuntimeError: [enforce fail at alloc_cpu.cpp")


def test_every_real_error_is_one_row(ended: Target) -> None:
    """Phase, module, device and batch of each; an error of another kind is none."""
    rows = rows_of(ended, "SELECT * FROM python.ooms ORDER BY seq")
    assert [(row["phase"], row["module"], row["root"]) for row in rows] == [
        ("forward", "tokens", "Model"),
        ("forward", "tokens", "Model"),
        ("forward", "tokens", "Model"),
        ("backward", "blocks.2.down", "Model"),
        ("optimizer", None, None),
        ("forward", "1", "Sequential"),
        ("loss", None, None),
    ]
    assert [row["device"] for row in rows] == ["cpu"] * 5 + ["cuda:1", "cpu"]
    assert [row["batch"] for row in rows[:4]] == ["[4096, 128]"] * 3 + ["[1024, 128]"]
    assert [row["samples"] for row in rows[:4]] == [4096] * 3 + [1024]
    assert [row["micro_batch"] for row in rows[:4]] == [0] * 4
    assert [row["step"] for row in rows[:3]] == [3] * 3


def test_the_figures_are_those_of_the_error(ended: Target) -> None:
    """What was asked for is in the message; less was free, under the limit that was set."""
    rows = rows_of(ended, "SELECT * FROM python.ooms ORDER BY seq")
    for row in rows[:5]:
        assert f"allocate {row['requested_bytes']} bytes" in row["error"]
        assert row["free_bytes"] < row["requested_bytes"] < row["total_bytes"]
        assert row["bounded_by"] == "address_space"
        assert 0 < row["resident_bytes"] < row["total_bytes"]
        assert row["allocated_bytes"] is row["reserved_bytes"] is None
    device, loss = rows[5:]
    assert device["requested_bytes"] == 2 << 30
    assert device["reserved_bytes"] - device["allocated_bytes"] == 27 << 30
    assert device["bounded_by"] == "device"
    assert loss["bounded_by"] == "machine"
    assert loss["requested_bytes"] == 4 << 46


def test_what_the_tensors_were_and_what_grew(ended: Target) -> None:
    """In the backward pass nearly all tensors are activations, and the forward calls had grown."""
    rows = rows_of(ended, "SELECT * FROM python.oom_categories WHERE oom = 4 ORDER BY seq")
    sizes = {row["category"]: row["bytes"] for row in rows}
    # What each block keeps: its own input, and both sides of tanh.
    per_block = 1024 * 128 * 4 * (64 + 3 * 64)
    assert sizes["activations"] >= 3 * per_block
    assert sizes["activations"] > 0.9 * sum(sizes.values())
    assert rows[0]["category"] == "activations"
    assert rows[0]["dtype"] == "float32"
    grown = rows_of(ended, "SELECT * FROM python.oom_growth WHERE oom = 4 ORDER BY seq")
    assert 0 < len(grown) <= 50
    assert {"blocks.0.qkv", "blocks.1.qkv", "blocks.2.qkv"} <= {row["module"] for row in grown}
    assert all(row["growth_bytes"] > 0 <= row["age_s"] for row in grown)
    ages = [row["age_s"] for row in grown]
    assert ages == sorted(ages)


def test_an_error_outside_of_any_step(tmp_path: Path) -> None:
    """A MemoryError of the script's own ends it, and is a row without any batch."""
    target = end(tmp_path / "script", "script")
    (row,) = rows_of(target, "SELECT * FROM python.ooms")
    assert (row["phase"], row["error"], row["batch"]) == ("other", "MemoryError", None)
    assert row["requested_bytes"] is None
    assert target.output.endswith("MemoryError\n")


@pytest.mark.nightly
def test_which_batch_it_was(tmp_path: Path) -> None:
    """Of how many, and of which epoch, is told of a loader whose first epoch was whole."""
    target = end(tmp_path / "second_epoch", "second_epoch")
    told = target.run(str(target.folder.path), "oom")
    assert "batch 3 of 4 in epoch 2 of loader 0" in told.stdout, told.stderr


def test_a_live_process_tells_what_to_do(live: Target) -> None:
    """The report names the failure, the activations, and a batch that keeps the product."""
    told = live.run(str(live.pid), "oom")
    assert told.returncode == 0, told.stderr
    text = " ".join(told.stdout.split())
    assert "out of memory on cpu: step 3, in the backward pass, blocks.2.down (Model)" in text
    assert "1024x1 -> 512x2 -> 256x4" in text
    assert "how it ended" not in text
    report = json.loads(live.run(str(live.pid), "oom", "--format", "json").stdout)
    rules = [advice["rule"] for advice in report["advice"]]
    assert rules == ["smaller batch", "checkpointing", "mixed precision", "address space"]
    wrong = live.run(str(live.pid), "oom", "--seq", "9")
    assert wrong.returncode == 2
    assert "there is no error 9" in wrong.stderr


def test_a_killed_process_left_no_word(doomed: Target) -> None:
    """After SIGKILL the run folder still has the report, and says how it ended, no more."""
    folder = str(doomed.folder.path)
    doomed.kill(signal.SIGKILL)
    told = doomed.run(folder, "oom")
    assert told.returncode == 0, told.stderr
    text = " ".join(told.stdout.split())
    assert "1024x1 -> 512x2" in text
    assert "It ended without a word" in text
    assert "Nothing on record points to the OOM killer." in text


def make_cgroup() -> Path | None:
    """A memory cgroup for a test, in either version of the interface; None where none is given."""
    for root in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        folder = root / f"probing-test-ooms-{os.getpid()}"  # of this run alone
        if not (root / "cgroup.procs").exists():
            continue
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        if any((folder / name).exists() for name in ("memory.limit_in_bytes", "memory.max")):
            return folder
        folder.rmdir()
    return None


@contextmanager
def limited(way: str, cwd: Path) -> Iterator[Target]:
    """The program, in a cgroup with a limit."""
    folder = make_cgroup()
    if folder is None:
        pytest.skip("no memory cgroup can be made here")
    target = start_program("ooms", way, home=cwd / "home", cwd=cwd)
    try:
        (folder / "cgroup.procs").write_text(str(target.pid))
        old = folder / "memory.limit_in_bytes"
        (old if old.exists() else folder / "memory.max").write_text(str(LIMIT))
        yield target
    finally:
        target.reap()
        wait_until(lambda: remove(folder), "the cgroup is gone")


def test_a_process_killed_by_its_cgroup(tmp_path: Path) -> None:
    """The kernel kills it at its cgroup's limit; its last rows, or the kernel's log, say so."""
    with limited("eat", tmp_path) as target:
        assert target.process.wait(DEADLINE_S) == -signal.SIGKILL
        text = " ".join(target.run(str(target.folder.path), "oom").stdout.split())
        assert text.startswith("how it ended It ended without a word")
        assert re.search(r"what it held Its resident set went from .* per step along a line", text)
        assert "1. Find what is kept from step to step first: `probing PID leak`" in text
        assert "Raise the limit where the job is started" in text
        assert "the limit of its cgroup, 900.0 MiB, is what was reached" in text
        limit = "Killed by the kernel OOM killer: its cgroup reached its limit"
        assert limit in text
        rows = rows_of(target, LAST_MEMORY)
        assert any(limit in sentence for sentence in judge(target.pid, rows, [], None).likely)


def test_cached_files_are_no_reason_for_a_kill(tmp_path: Path) -> None:
    """They fill a cgroup in which data is read; who is killed there by hand was not by them."""
    with limited("read", tmp_path) as target:
        target.wait_for_output("ready")
        target.kill(signal.SIGKILL)
        rows = rows_of(target, LAST_MEMORY)
        if rows[0]["cgroup_bytes"] < NEAR_LIMIT * LIMIT:
            pytest.skip("what is read here is not cached")
        assert rows[0]["cgroup_cache_bytes"] > LIMIT // 4
        assert judge(target.pid, rows, [], None).likely == ()
        before = [{**row, "cgroup_cache_bytes": None} for row in rows]
        (likely,) = judge(target.pid, before, [], None).likely
        assert "with cached files" in likely, "a record from before tells no better"


def remove(folder: Path) -> bool:
    """Take a cgroup away, once its last process has gone."""
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True
