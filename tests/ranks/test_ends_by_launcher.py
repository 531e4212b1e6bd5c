"""Ranks that ended without a word, and whose launcher has not asked yet how."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from probing.linux import process
from tests.harness.targets import Target, wait_until

pytestmark = pytest.mark.anypython


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
