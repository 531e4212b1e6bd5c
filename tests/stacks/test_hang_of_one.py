"""What `probing PID hang` says of a process that belongs to no job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.targets import Target, clean_env, program_path, run_command

pytestmark = pytest.mark.anypython

StartProgram = Callable[..., Target]


def line_of(text: str) -> int:
    """The number of the first line of the program that holds some text."""
    lines = program_path("one_hang").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def answer(target: Target, *args: str) -> str:
    """What is said of it; nothing else is, on either stream."""
    done = target.run(str(target.pid), "hang", *args)
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs no Python."""
    process = subprocess.Popen(["sleep", "600"], cwd=tmp_path)
    yield process
    process.kill()
    process.wait()


def test_a_process_without_python(shell: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """It is alive, and that is said, with the exit code of what cannot be asked."""
    env = clean_env(tmp_path / "home")
    for words in ((str(shell.pid), "hang", "--check"), ("-t", str(shell.pid), "hang")):
        done = run_command(*words, cwd=tmp_path, env=env)
        assert (done.returncode, done.stdout) == (3, "")
        first, *_ = done.stderr.splitlines()
        assert first == f"error: process {shell.pid} is alive, but it is not a Python process."


def test_a_process_without_python_beside_one_that_has_it(
    program: StartProgram, shell: subprocess.Popen[bytes]
) -> None:
    """Of several that are named each has its verdict, and none that is alive has ended."""
    target = program("one_hang", "event", PROBING="all")
    target.wait_for_output("ready")
    done = target.run("-t", str(shell.pid), "-t", str(target.pid), "hang")
    assert done.returncode == 0, done.stderr
    assert f"Process {shell.pid} is alive, but it is not a Python process." in done.stdout
    assert f"process {target.pid} is waiting for an event" in done.stdout
    assert "ended" not in done.stdout.lower()


@pytest.mark.parametrize("probing", ["1", "all"])
def test_an_import_of_torch_is_told_by_the_line_that_imports(
    program: StartProgram, probing: str
) -> None:
    """Neither the line nor the stack names the hook that waits for the end of the import."""
    target = program("one_hang", "importing", PROBING=probing)
    target.wait_for_output("ready")
    said = answer(target)
    assert f"at one_hang.py:{line_of('import torch  #')} in importing" in said
    assert "_boot.py" not in said
