"""The page "The job hangs: what to type": each section is typed at a job that hangs so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import warm
from tests.harness.targets import DEADLINE_S, Target, program_path, wait_until
from tests.house.test_docs import HANG, blocks

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What the commands of a section are typed at.

    Attributes:
        way: The program of ``tests/programs``, how it hangs, and what its backtrace then says.
        has_agent: Whether it was started with one.
        ranks: How many of it run.
        is_dead: Whether it is killed before.
        shows: What the commands must print, among other things.
    """

    way: tuple[str, str, str]
    has_agent: bool = False
    ranks: int = 1
    is_dead: bool = False
    shows: tuple[str, ...]


NATIVE = 'Native "'
LATE = "frames of C functions are left out: py-spy on process"
"""What it says of them on a busy machine: it pauses a process for 10 s at the most."""
COLLECTIVE = ("hung", "all_reduce", "in the collective all_reduce")
INSIDE = ("hung", "forward", "forward\n")
LOCKED = ("hung", "gil", "holds the interpreter lock in gil")
STOPPED = ("stuck", "stopped", "stopped by a signal")
FIRST = "Which process is it?"
SECTIONS = {
    FIRST: Section(way=COLLECTIVE, shows=("no agent", "hung.py all_reduce")),
    "Where is it?": Section(
        way=COLLECTIVE, shows=("collective all_reduce", "py-spy", NATIVE, "work = ")
    ),
    "Put the agent in": Section(
        way=COLLECTIVE, shows=("the agent is in process", "rank 0 of 2 on gloo", "all_reduce")
    ),
    "Ask its record": Section(
        way=INSIDE, has_agent=True, shows=("forward  Stuck   Stuck", "NULL\n   1 ")
    ),
    "Something keeps the interpreter lock": Section(
        way=LOCKED,
        has_agent=True,
        shows=("holds the interpreter lock in gil", "in C function", "'MainThread'"),
    ),
    "It is stopped": Section(way=STOPPED, shows=("stopped by a signal", "in stopped")),
    "It has ended": Section(
        way=INSIDE, has_agent=True, is_dead=True, shows=("dead", "Stuck", "last_step\n")
    ),
    "Many ranks": Section(
        way=INSIDE,
        has_agent=True,
        ranks=2,
        shows=("(main, sleeping", "rank  step  in_progress", "\n   1 "),
    ),
    "Before you kill it": Section(way=INSIDE, has_agent=True, shows=()),
}
"""The sections with commands, by their headings."""


def section_blocks() -> dict[str, list[str]]:
    """The commands of each section, in order."""
    text = HANG.read_text("utf-8")
    headings = [(text.count("\n", 0, m.start()) + 1, m[1]) for m in HEADING.finditer(text)]
    found: dict[str, list[str]] = {}
    for block in blocks(HANG, "bash"):
        heading = [name for line, name in headings if line < block.line][-1]
        found.setdefault(heading, []).append(block.code)
    return found


def test_every_section_with_commands_is_typed() -> None:
    """No command stands on the page that is not run here."""
    assert list(section_blocks()) == list(SECTIONS)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "heading",
    [
        # `list --all` looks at every process.
        pytest.param(heading, marks=pytest.mark.alone if heading == FIRST else ())
        for heading in SECTIONS
    ],
)
def test_a_section(
    heading: str,
    program: Callable[..., Target],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Every command of the section exits with 0 and shows what the section is about."""
    section = SECTIONS[heading]
    name, way, hangs = section.way
    if section.has_agent:
        targets = [program(name, way, PROBING="all", RANK=str(n)) for n in range(section.ranks)]
    else:
        argv = [sys.executable, str(program_path(name)), way]
        targets = [Target(argv, tmp_path / "home", tmp_path)]
    target = targets[0]
    request.addfinalizer(target.reap)
    for each in targets:
        each.wait_for_output("ready")
        pid = str(each.pid)
        wait_until(lambda pid=pid: hangs in target.run(pid, "backtrace").stdout, hangs)  # type: ignore[misc]
    if section.is_dead:
        target.kill()
    env = {
        **target.env,
        "PATH": f"{warm.commands_on_path(tmp_path)}{os.pathsep}{os.environ['PATH']}",
        "PID": str(target.pid),
    }
    printed = told = ""
    for code in section_blocks()[heading]:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback (most" not in done.stderr
        printed += done.stdout
        told += done.stderr
    for text in section.shows:
        assert text in printed or (text == NATIVE and LATE in told), printed + told
    if heading == "Before you kill it":
        folder = target.folder.path.name
        saved = [f"backtrace-{target.pid}.json", f"torch_trace-{target.pid}.parquet", folder]
        assert all((tmp_path / name).exists() for name in saved)
