"""Ranks that ended without a word, and whose launcher has not asked yet how."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from probing.linux import process
from probing.ring.native import IN_C
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.anypython

_TICK_S = 0.02
"""More than one of the clock that dates files."""


def test_who_was_killed_is_told_from_whom_the_launcher_ended(
    program: Callable[..., Target], tmp_path: Path
) -> None:
    """The rank with SIGKILL is the cause; those that got SIGTERM after it are victims."""
    ranks = [
        program("idle", PROBING="all", RANK=str(n), WORLD_SIZE="3", TORCHELASTIC_RUN_ID="night")
        for n in range(3)
    ]
    started = {}
    for target in ranks:
        target.wait_for_output("ready")
        target.wait_for_agent()
        started[target.pid] = process.start_time(target.pid) or 0
    for number, how in ((1, signal.SIGKILL), (0, signal.SIGTERM), (2, signal.SIGTERM)):
        target = ranks[number]
        target.process.send_signal(how)
        words = wait_until(partial(process.exit_words, target.pid, started[target.pid]), "an end")
        assert words == f"signal {how.name}"
    done = ranks[0].run("-t", "job:night", "hang")
    said = " ".join(done.stdout.split())
    assert "All ranks have ended, rank 1 first: it ended without a word" in said
    assert "Its exit status, which its parent has not taken yet, is signal SIGKILL" in said
    assert "victims (2): ranks 0,2" in said


@pytest.mark.skipif(IN_C is None, reason="only the C part is told of SIGTERM")
def test_a_job_that_was_cancelled_says_so(program: Callable[..., Target]) -> None:
    """All ranks got SIGTERM, and who started them has taken their exit statuses."""
    ranks = [
        program("idle", PROBING="all", RANK=str(n), WORLD_SIZE="2", TORCHELASTIC_RUN_ID="night")
        for n in range(2)
    ]
    for target in ranks:
        target.wait_for_output("ready")
        target.wait_for_agent()
    for target in ranks:
        target.process.send_signal(signal.SIGTERM)
        assert target.process.wait(DEADLINE_S) == -signal.SIGTERM
    said = verdict_on(ranks)
    name = Path("/proc/self/comm").read_text().strip()
    sender = f"process {os.getpid()} ({name})"
    told = f"All 2 ranks have ended: each was asked to end by a SIGTERM of {sender} at"
    assert told in said
    assert "victims" not in said
    said = " ".join(ranks[0].run("-t", "job:night", "doctor").stdout.split())
    assert told in said.replace(" certain ", " ")
    assert "fix: This is no crash: SIGTERM is how a scheduler ends" in said


@pytest.mark.skipif(IN_C is None, reason="only the C part is told of SIGTERM")
def test_who_was_asked_by_another_is_told_apart(program: Callable[..., Target]) -> None:
    """One rank got SIGTERM from somebody else than the others, as from a user."""
    ranks = [
        program("idle", PROBING="all", RANK=str(n), WORLD_SIZE="2", TORCHELASTIC_RUN_ID="night")
        for n in range(2)
    ]
    for target in ranks:
        target.wait_for_output("ready")
        target.wait_for_agent()
    with subprocess.Popen(["bash", "-c", f"kill {ranks[1].pid}; read"], stdin=subprocess.PIPE):
        assert ranks[1].process.wait(DEADLINE_S) == -signal.SIGTERM  # it has a name until it ends
    asked_s = ranks[1].folder.terminated.stat().st_mtime
    wait_until(lambda: time.time() > asked_s + _TICK_S, "another tick of the clock of files")
    ranks[0].process.send_signal(signal.SIGTERM)
    assert ranks[0].process.wait(DEADLINE_S) == -signal.SIGTERM
    said = verdict_on(ranks)
    assert "All ranks have ended, rank 1 first: it was asked to end by a SIGTERM of" in said
    assert "(bash) at" in said


def rank_env(rank: int, folder: Path) -> dict[str, str]:
    """What a launcher tells one of three ranks."""
    error_file = str(folder / f"error-{rank}.json")
    return {
        "PROBING": "all", "RANK": str(rank), "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "night",
        "TORCHELASTIC_ERROR_FILE": error_file,
    }  # fmt: skip


def verdict_on(ranks: list[Target]) -> str:
    """What is said of the job."""
    return " ".join(ranks[0].run("-t", "job:night", "hang").stdout.split())


def test_what_a_rank_has_written_for_torchrun_is_read(
    program: Callable[..., Target], tmp_path: Path
) -> None:
    """An error that the script has caught counts before an orderly end, and before those of peers.

    Without that file nothing tells a script that ends with exit code 1 from one that is through.
    """
    ways = ("peers", "own", "peers")
    ranks = [program("ending_rank", way, **rank_env(n, tmp_path)) for n, way in enumerate(ways)]
    for target in ranks:
        target.wait_for_output("ready")
        target.wait_for_agent()
    for target in ranks:
        (target.cwd / "go").touch()
    for target in ranks:
        assert target.process.wait(DEADLINE_S) == 1
    said = verdict_on(ranks)
    assert "All ranks have ended, rank 1 first: it ended with ValueError: a label is out of" in said
    assert "1007, by the error file that torchrun gave it" in said
    assert "victims (2): ranks 0,2" in said


def test_a_thread_that_was_lost_before_does_not_hide_a_killing(
    program: Callable[..., Target], tmp_path: Path
) -> None:
    """The rank that got SIGKILL ended without a word, whatever a thread of another has died of."""
    ranks = [program("ending_rank", "thread", **rank_env(n, tmp_path)) for n in range(3)]
    for target in ranks:
        target.wait_for_output("ready")
        target.wait_for_agent()
    for target in ranks[::2]:
        (target.cwd / "go").touch()
        target.wait_for_output("lost")
    for number, how in ((1, signal.SIGKILL), (0, signal.SIGTERM), (2, signal.SIGTERM)):
        target = ranks[number]
        started = process.start_time(target.pid) or 0
        target.process.send_signal(how)
        wait_until(partial(process.exit_words, target.pid, started), "an end")
    said = verdict_on(ranks)
    assert "All ranks have ended, rank 1 first: it ended without a word" in said
