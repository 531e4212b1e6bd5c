"""How a process of `multiprocessing` ended, whose exceptions that package catches."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from probing.postmortem.crashes import read_crash
from probing.rundir.folders import ProcessFolder, RunDirectory
from tests.harness.targets import DEADLINE_S, clean_env, program_path

ENDS = [
    pytest.param("spawn", 1, True, marks=pytest.mark.anypython),
    # Who comes to code that runs already is told of its end by Python 3.12 and older alone.
    pytest.param("fork", 1, sys.version_info < (3, 13), marks=pytest.mark.anypython),
    pytest.param("derived", 1, True, marks=pytest.mark.anypython),
    pytest.param("given up", 3, True, marks=pytest.mark.anypython),
    pytest.param("given up in peace", 0, False, marks=pytest.mark.anypython),
    pytest.param("exits", 3, False, marks=pytest.mark.anypython),
    pytest.param("returns", 0, False, marks=pytest.mark.anypython),
    pytest.param("torch", None, True, marks=pytest.mark.torch),
]
"""What the child does, its exit code, and whether an exception ends it."""


def run(way: str, cwd: Path, *, agent: bool) -> tuple[int, str, str]:
    """What whoever started the parent gets to see."""
    cwd.mkdir()
    done = subprocess.run(
        [sys.executable, str(program_path("ending_children")), way],
        env=clean_env(cwd / "home", PROBING="0", **({"AGENT": "1"} if agent else {})),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return done.returncode, done.stdout, re.sub(r"-\d+:", "-N:", done.stderr)


def child_of(home: Path) -> ProcessFolder:
    """The run folder of the one process with an agent."""
    (folder,) = RunDirectory(home).folders()
    return folder


@pytest.mark.parametrize(("way", "code", "is_told"), ENDS)
def test_the_exception_of_a_child_is_on_record(
    way: str, code: int | None, is_told: bool, tmp_path: Path
) -> None:
    """Also where it is turned into an exit code; output and exit codes are those without us."""
    without = run(way, tmp_path / "without", agent=False)
    assert run(way, tmp_path / "with", agent=True) == without
    assert code is None or without[1].endswith(f"exit code {code}\n")
    record = read_crash(child_of(tmp_path / "with" / "home"))
    if not is_told:
        assert record is None
        return
    assert record is not None
    assert (record.kind, record.type) == (
        "exception",
        "__mp_main__.Failed" if way != "fork" else "Failed",
    )
    assert record.message == "in the child"
    first = record.threads[0]
    assert first.is_main
    assert first.frames[0].func == "culprit"
    assert not any("/agent/" in frame.file for frame in first.frames)
