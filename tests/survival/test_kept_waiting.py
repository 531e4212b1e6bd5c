"""A process whose memory never comes, read by root: it keeps nobody waiting."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing import process
from probing.kernel_files import within
from probing.thread_numbers import kernel_numbers
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
def test_its_command_line_keeps_no_list_waiting(hostile: Target) -> None:
    """What would be read for ever is left out after a second, and the others are listed."""
    wait_until(lambda: process.command(hostile.pid) == (), "the page to be kept back")
    assert process.environment(hostile.pid) == {}
    done = hostile.run("list", "--all", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert f'"pid": {hostile.pid}' in done.stdout or str(os.getpid()) in done.stdout


@needs_root
def test_its_threads_keep_no_backtrace_waiting(hostile: Target) -> None:
    """The number of a thread whose record never comes is not known, and nobody waits for it."""
    began = time.monotonic()
    assert kernel_numbers(hostile.pid, [int(hostile.output.split()[1])]) == {}
    assert time.monotonic() - began < DEADLINE_S / 2


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
