"""System calls that fail while the agent starts and records, each in turn: the training goes on."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing.messages.card import TAKEN_OUT
from tests.faults import Reached
from tests.harness.targets import clean_env, program_path

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ERRORS = {
    "bind": "EADDRINUSE",
    "chmod": "EPERM",
    "clone3": "EAGAIN",
    "fallocate": "ENOSPC",
    "fcntl": "EMFILE",
    "listen": "EACCES",
    "mkdir": "ENOSPC",
    "mmap": "ENOMEM",
    "openat": "EMFILE",
    "pipe2": "EMFILE",
    "rename": "ENOSPC",
    "socket": "EMFILE",
    "unlink": "EACCES",
    "write": "ENOSPC",
}
"""What each fails with, also for good; any other once, with EIO."""
NEVER_FAIL = frozenset(
    {
        "brk", "clock_gettime", "exit", "exit_group", "futex", "getpid", "gettid", "getuid",
        "munmap", "pwrite64", "readv", "rseq", "set_robust_list", "sigaltstack",
    }
)  # fmt: skip
"""Calls that have no way to fail, are those of the C library, or are the program's own."""

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Answer]]:
    """Has one more fork train while a system call fails."""
    assert shutil.which("strace"), "these tests need strace: apt-get install strace"
    env = clean_env(tmp_path_factory.mktemp("calls") / "home", PROBING="1")
    argv = [sys.executable, str(program_path("failing_calls"))]
    with subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def one(inject: str = "", *, agent: bool = True) -> Answer:
            assert process.stdin is not None
            assert process.stdout is not None
            # The first thing that a new thread does is to ask for memory, before any code of ours:
            # Python prints if it gets none, and waits for ever for the thread.
            threads = not inject.startswith("mmap")
            task = {"inject": inject, "with_agent": agent, "threads": threads}
            print(json.dumps(task), file=process.stdin, flush=True)
            answer: Answer = json.loads(process.stdout.readline())
            # That the agent has left in the end tells nothing of a call that failed.
            answer["card"] = [problem for problem in answer["card"] if problem != TAKEN_OUT]
            return answer

        yield one
        assert process.stdin is not None
        process.stdin.close()


def rounds(whole: Answer, *, every: bool) -> Iterator[str]:
    """What is to fail: calls of a kind for good, where they may, or also each that is made."""
    for name, count in whole["calls"].items():
        error = ERRORS.get(name, "EIO")
        if every and name not in NEVER_FAIL:
            yield from (f"{name}:error={error}:when={k}" for k in range(1, count + 1))
        if name in ERRORS:
            yield f"{name}:error={error}:when=1+"


@pytest.mark.fault("R1")
@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["some", "all"]
)
def test_a_failing_system_call_costs_the_record_at_most(
    every: bool, ask: Callable[..., Answer], fault: Reached
) -> None:
    """Exit code, output and losses are those without us; what is not on record is told."""
    alone, whole = ask(agent=False), ask()
    assert (alone["status"], alone["rows"], alone["output"]) == (0, 0, "")
    assert (whole["problems"], whole["card"]) == ([], [])
    assert whole["rows"] > 0
    for inject in rounds(whole, every=every):
        got = ask(inject)
        # The agent may say in one line of stderr why it is not there.
        output = re.sub(r"\Aprobing: [^\n]+\n", "", got["output"])
        seen = (got["status"], output, got.get("losses"))
        assert seen == (0, "", alone["losses"]), (inject, got)
        is_told = bool(got["problems"] or got["card"]) or got["rows"] == whole["rows"]
        # Where no file can be made, or none be put in place, there is no card to say so.
        is_told |= inject.endswith("when=1+") and not got["runs"]
        fault.holds(inject, "unharmed, told", "unharmed, told", is_kept=is_told)


def train_on(size: str, home: Path, *words: str) -> Answer:
    """Train with a file system of that size as the run directory."""
    home.mkdir(mode=0o700)
    mount = f'mount -t tmpfs -o size={size},mode=700 none {home} && exec "$@"'
    argv = [sys.executable, str(program_path("full_disk")), *words]
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", mount, "sh", *argv],
        env=clean_env(home, PROBING="1", PROBING_RINGS_MIB="0"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answer: Answer = json.loads(done.stdout)
    return answer


@pytest.mark.fault("R1")
def test_a_full_file_system_costs_the_record_at_most(tmp_path: Path, fault: Reached) -> None:
    """Too small at the start, or full in the middle: no signal, and what is missing is told."""
    small = train_on("1m", tmp_path / "small")
    fault.equals("1 MiB at the start: losses", small["alone"], small["losses"])
    (problem,) = small["problems"]
    is_told = "of its rows, because only" in problem
    fault.holds("1 MiB at the start: told", "fewer rows", problem, is_kept=is_told)
    fault.equals("1 MiB at the start: on the card", [problem], small["card"])
    later = train_on("64m", tmp_path / "later", "fill")
    fault.equals("full from the third step on: losses", later["alone"], later["losses"])
    _, problem = later["problems"]  # after that on the space that there was at the start
    fault.holds("full later: told", "No space", problem, is_kept="is NULL: No space" in problem)
    (row,) = later["rows"]
    fault.equals("full later: rows", later["written"], row["n"])
    unnamed = row["n"] - row["named"]
    fault.holds("full later: rows without a name", "some", str(unnamed), is_kept=unnamed > 0)
