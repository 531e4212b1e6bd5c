"""What the kernel counts of a process's children, for real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from probing.linux import process
from probing.reach import ladder
from probing.stacks.work_done import work_of
from tests.harness.stacks import taken_by
from tests.harness.targets import Target, wait_until

pytestmark = pytest.mark.anypython

COPIES = """
import sys
with open("/dev/zero", "rb") as source, open("/dev/null", "wb") as sink:
    while True:
        sink.write(source.read(1 << 16))
"""
COMPUTES = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"


def test_what_a_child_reads_and_writes_counts() -> None:
    """The bytes and the time of a process that was started go up while it copies."""
    child = subprocess.Popen([sys.executable, "-c", COPIES])
    try:
        first = work_of(os.getpid(), ()).children_bytes
        assert first is not None
        least = first + (1 << 20)
        wait_until(lambda: (work_of(os.getpid(), ()).children_bytes or 0) > least, "a megabyte")
    finally:
        child.kill()
        child.wait()


def test_the_time_of_children_that_have_ended_stays() -> None:
    """One child after the other, each gone before the next look: their time still adds up."""
    before = work_of(os.getpid(), ()).children_cpu_s or 0.0
    for _ in range(2):
        subprocess.run([sys.executable, "-c", COMPUTES], check=True)
    assert (work_of(os.getpid(), ()).children_cpu_s or 0.0) >= before + 0.2


def test_from_outside_the_agents_threads_do_not_count(program: Callable[..., Target]) -> None:
    """What a question makes the agent read is no work of the job's, whoever looks."""
    target = program("one_hang", "event", PROBING="all")
    target.wait_for_output("ready")
    target.wait_for_agent()
    inside = taken_by("agent", lambda: ladder.backtrace_of(target.folder, []))
    os.kill(target.pid, signal.SIGSTOP)
    wait_until(lambda: process.state(target.pid) == "T", "the stop")
    outside = ladder.backtrace_of(target.folder, [])
    assert [trace.source for trace in (inside, outside)] == ["agent", "py-spy"]
    for trace in (inside, outside):
        assert trace.work is not None
        assert [thread.thread_id for thread in trace.work.threads] == [target.pid]
