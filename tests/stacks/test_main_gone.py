"""A process whose main thread has ended, and that goes on all the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import probing
from probing.linux import process
from tests.harness.stacks import taken_by
from tests.harness.targets import Target, program_path, wait_until

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize("agent", [True, False], ids=["agent", "stranger"])
def test_it_is_no_ended_process(
    agent: bool, program: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is alive for the kernel's word of its threads; its stacks come as of any other."""
    if agent:
        target = program("main_gone", PROBING="all")
        target.wait_for_agent()
    else:
        target = Target([sys.executable, str(program_path("main_gone"))], tmp_path, tmp_path)
    monkeypatch.setenv("PROBING_HOME", str(target.env["PROBING_HOME"]))
    try:
        target.wait_for_output("ready")
        wait_until(lambda: process.state(target.pid) == "Z", "the end of the main thread")
        assert process.start_time(target.pid) is not None
        assert process.is_python(target.pid)
        assert "main_gone" in " ".join(process.command(target.pid))
        job = probing.connect(target.pid)
        trace = taken_by("agent" if agent else "py-spy", job.backtrace)
        main, worker = trace.threads
        assert (main.is_main, main.waiting) == (True, "ended")
        # Before Python 3.11 nobody outside can tell which of the kernel's threads it is.
        waiting = "sleeping" if agent or sys.version_info >= (3, 11) else None
        assert (worker.name, worker.waiting) == ("worker", waiting)
        assert worker.frames[0].line == "time.sleep(600)"
        assert main.thread_id != worker.thread_id
        said = " ".join(target.run(str(target.pid), "hang").stdout.split())
        assert "goes on without its main thread, which has ended by itself" in said
        if agent:
            assert job.eval("1 + 1").value == "2"
    finally:
        target.reap()
    assert process.start_time(target.pid) is None


def test_a_zombie_has_ended(program: Callable[..., Target]) -> None:
    """A process all of whose threads have ended is gone, and how it ended is known until asked."""
    target = program("idle", PROBING="all")
    target.wait_for_agent()
    started = process.start_time(target.pid)
    assert started is not None
    assert process.exit_words(target.pid, started) is None
    target.process.kill()
    wait_until(lambda: process.exit_words(target.pid, started), "the zombie")
    assert process.exit_words(target.pid, started) == "signal SIGKILL"
    wait_until(lambda: process.start_time(target.pid) is None, "the end of its other threads")
    assert process.living_thread(target.pid) is None
