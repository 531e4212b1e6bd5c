"""A process whose memory never comes, read by root: it keeps nobody waiting."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.linux import process
from probing.linux.kernel_files import within
from tests.harness.targets import DEADLINE_S, Target, program_path, wait_until

pytestmark = pytest.mark.anypython

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may have the kernel wait for a page"
)


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Target]:
    """A process that keeps its readers waiting."""
    target = Target([sys.executable, str(program_path("kept_waiting"))], tmp_path, tmp_path)
    target.wait_for_output("ready")
    yield target
    target.reap()


@needs_root
def test_its_backtrace_ends_without_it(hostile: Target) -> None:
    """What reads its stack is given up after ten seconds, and the kernel's word is told."""
    wait_until(lambda: _sleeps_in(hostile.pid, "userfault"), "the page to be waited for")
    done = hostile.run(str(hostile.pid), "backtrace")
    assert done.returncode == 0, done.stderr
    assert "seen by the kernel alone" in done.stdout
    assert f"py-spy on process {hostile.pid} did not answer within 10 s" in done.stdout
    assert hostile.process.poll() is None


def _sleeps_in(pid: int, function: str) -> bool:
    """Whether the main thread sleeps in a function of the kernel of such a name."""
    return any(function in (fact.wchan or "") for fact in process.threads(pid).values())


def test_what_takes_too_long_is_left() -> None:
    """A read that ends in time is used, one that fails or does not end is something else."""
    reader, writer = os.pipe()
    try:
        assert within(DEADLINE_S, lambda: b"x", b"") == b"x"
        assert within(0.01, lambda: os.read(reader, 1), b"") == b""
    finally:
        os.write(writer, b"x")  # the thread that was left ends
        os.close(writer)
        wait_until(lambda: _is_read(reader), "the end of the thread")
        os.close(reader)


def _is_read(reader: int) -> bool:
    """Whether there is nothing more in a pipe whose other end is closed."""
    os.set_blocking(reader, False)
    try:
        return os.read(reader, 1) == b""
    except BlockingIOError:
        return False
