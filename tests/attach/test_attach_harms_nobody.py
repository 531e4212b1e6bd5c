"""Whoever attaches may be killed at any instant, and children be born at any: none is harmed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from probing.attach.injectors.injected.script import forks_text
from tests.attach.forks import attach_while_forking
from tests.attach.kills import kill_again_and_again
from tests.attach.test_injection_pending import pythons_at_hand
from tests.harness.targets import ROOT, clean_env

pytestmark = pytest.mark.anypython

HELD_TOO_LONG = """
import os, sys, threading
forks = sys.modules["probing.safety.forks"] = type(sys)("probing.safety.forks")
exec(open(sys.argv[1]).read(), forks.__dict__)
forks._LONGEST_WAIT_S = 0.2
sys.path.insert(0, sys.argv[2])
begun, over = threading.Event(), threading.Event()

def load():
    with forks.held_back():
        import slow

thread = threading.Thread(target=load, name="probing-attach", daemon=True)
thread.start()
begun.wait()
pid = os.fork()
if pid == 0:
    over.set()
    import slow
    os._exit(slow.ANSWER)
over.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
SLOW = """
import __main__
__main__.begun.set()
__main__.over.wait()
ANSWER = 7
"""


def test_a_killed_injector_leaves_nobody_behind() -> None:
    """Killed at any of its calls of ptrace: every thread goes on, with right answers."""
    tally = kill_again_and_again(sys.executable, 25)
    assert tally["killed, a thread on its way"] > 5


@pytest.mark.nightly
@pytest.mark.parametrize("version", [min, max])
def test_a_thousand_injectors_are_killed(
    version: Callable[[Iterable[tuple[int, int]]], tuple[int, int]],
) -> None:
    """The same a thousand times, on the oldest and the newest Python that are here."""
    found = pythons_at_hand()
    tally = kill_again_and_again(found[version(found)], 1000)
    assert tally["killed, a thread on its way"] > 500


def test_no_child_born_during_an_attach_finds_an_import_unfinished() -> None:
    """Three threads fork all the time; each child could import all that the agent imports."""
    born, _ = attach_while_forking(1)
    assert born.well > 50
    assert (born.unfinished, born.hung) == (0, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(10))
def test_a_hundred_thousand_are_born_during_a_hundred_attaches(part: int) -> None:
    """The same of 1,000 children at each of ten attaches, ten times."""
    born, _ = attach_while_forking(10, children=1000)
    assert born.well >= 10_000, part
    assert (born.unfinished, born.hung) == (0, 0)


def test_a_child_born_all_the_same_begins_the_import_anew(tmp_path: Path) -> None:
    """Where a fork has waited as long as it may, its child is rid of what we had half imported."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "text").write_text(forks_text())
    argv = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        HELD_TOO_LONG,
        str(tmp_path / "text"),
        str(tmp_path),
    ]
    done = subprocess.run(
        argv, env=clean_env(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("7\n", "")
