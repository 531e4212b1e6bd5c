"""Completion in the shells that people type in, each on a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from probing.linux import process
from probing.rundir.folders import RunDirectory
from tests.harness.targets import DEADLINE_S, clean_env

pytestmark = [pytest.mark.anypython, pytest.mark.slow]


class Way(NamedTuple):
    """How a shell is started without its user's files, and what makes it complete."""

    argv: tuple[str, ...]
    lines: tuple[str, ...]


WAYS = {
    "bash": Way(
        ("bash", "--norc", "--noprofile", "-i"),
        ('eval "$(_PROBING_COMPLETE=bash_source probing)"',),
    ),
    "zsh": Way(
        ("zsh", "-f", "-i"),
        (
            "autoload -Uz compinit && compinit -u -D",
            'eval "$(_PROBING_COMPLETE=zsh_source probing)"',
        ),
    ),
    "fish": Way(
        ("fish", "--no-config", "-i"), ('eval "$(_PROBING_COMPLETE=fish_source probing)"',)
    ),
}
_SEQUENCE = re.compile(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;?>=]*[A-Za-z]|\x1b[()=>][A-Z0-9]?|\r|\x08")


class Shell:
    """A shell on a terminal."""

    def __init__(self, way: Way, home: Path) -> None:
        own = str(Path(sys.executable).parent)
        env = clean_env(home, PATH=f"{own}:{os.environ['PATH']}", HOME=str(home), TERM="xterm")
        self._shown = b""
        self._master, theirs = pty.openpty()
        self._process = subprocess.Popen(  # a terminal of its own, which fish insists on
            ["setsid", "--ctty", *way.argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env,
            cwd=home,
        )
        os.close(theirs)
        for line in way.lines:
            self.type(f"{line}\n")
        self.type("echo rea''dy\n")
        self.wait_for("ready")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def wait_for(self, words: str) -> None:
        """Wait until it shows these; what was shown before counts no more."""
        end_s = time.monotonic() + DEADLINE_S
        while words not in self._text():
            assert time.monotonic() < end_s, (words, self._text())
            if select.select([self._master], [], [], 0.1)[0]:
                self._shown += os.read(self._master, 65_536)
        self._shown = b""

    def _text(self) -> str:
        return _SEQUENCE.sub("", self._shown.decode("utf-8", "replace"))

    def end(self) -> None:
        """End it and what it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE_S)
        os.close(self._master)


@pytest.fixture(params=[pytest.param(way, id=name) for name, way in WAYS.items()])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """Each of them, in whose run directory this very process is."""
    if shutil.which(request.param.argv[0]) is None:
        pytest.skip(f"there is no {request.param.argv[0]}")
    pid, started = os.getpid(), process.start_time(os.getpid())
    assert started is not None
    RunDirectory(tmp_path).create_folder(pid, started)
    made = Shell(request.param, tmp_path)
    yield made
    made.end()


def test_tab_completes(shell: Shell) -> None:
    """A command, a process, and a command behind it; all that is typed is one line."""
    pid = str(os.getpid())
    shell.type("probing -t a")
    shell.type("\t")
    shell.wait_for("all ")
    shell.type("backt\t")
    shell.wait_for("backtrace ")
    shell.type(f"\x15probing {pid[:-1]}\t")
    shell.wait_for(pid)
