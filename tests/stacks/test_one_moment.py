"""What is told of a thread is of one moment: its frames, and what the kernel says of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection

import pytest

from probing.agent.sources.stacks import look
from probing.linux import process
from tests.harness.targets import wait_until

pytestmark = pytest.mark.anypython


class _Trainer:
    """A thread that computes, as far as its frames tell, and then waits for data from a pipe."""

    def __init__(self) -> None:
        self.goes_on = False
        self.rounds = 0
        self.reads, self.writes = os.pipe()
        self.thread = threading.Thread(target=self.run, name="trainer")
        self.thread.start()
        wait_until(lambda: self.rounds > 0, "the thread to compute")

    def run(self) -> None:
        self.compute()
        os.read(self.reads, 1)

    def compute(self) -> None:
        while not self.goes_on:
            self.rounds += 1

    def end(self) -> None:
        self.goes_on = True
        os.write(self.writes, b"x")
        self.thread.join()
        os.close(self.reads)
        os.close(self.writes)


def test_a_wait_that_came_later_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that reaches a wait after its frames were read is not said to wait in them."""
    trainer = _Trainer()
    number = trainer.thread.native_id
    assert number is not None
    read = process.threads

    def is_in_pipe() -> bool:
        call = read(os.getpid(), {number})[number].call
        return call is not None and call.name == "read"

    def read_later(pid: int, numbers: Collection[int]) -> dict[int, process.ThreadFacts]:
        if number not in numbers:
            return read(pid, numbers)
        trainer.goes_on = True
        wait_until(is_in_pipe, "the thread to read from its pipe")
        return read(pid, numbers)

    try:
        with monkeypatch.context() as later:
            later.setattr(process, "threads", read_later)
            first = look.take_backtrace()
        second = look.take_backtrace()
    finally:
        trainer.end()
    (moved,) = (thread for thread in first.threads if thread.thread_id == number)
    assert moved.frames[0].func.endswith("compute")
    assert moved.waiting == "running"
    (rests,) = (thread for thread in second.threads if thread.thread_id == number)
    assert rests.frames[0].func.endswith("run")
    assert rests.waiting == "waiting for data from a pipe"
