"""What `hang` says of waits for a notice, a result or a semaphore, and of waits at exit."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest

from probing.stacks.work_done import children_of
from tests.harness.targets import Target, program_path, wait_until

pytestmark = pytest.mark.anypython

StartProgram = Callable[..., Target]
NO_OTHER = "no running function of another thread"
HELD = 'held up by thread \\d+ "{}", which '
SAYS: dict[str, str] = {
    "event": HELD.format("loader") + "by its code sets the event loaded at {loaded.set()} in load"
    f" and is waiting for an event .* \\(the event asked,"
    f" which {NO_OTHER} sets\\) at {{asked.wait()}}",
    "condition": HELD.format("producer") + "by its code notifies the condition changed at"
    " {changed.notify_all()} in produce and is sleeping",
    "item": HELD.format("producer") + "by its code puts in an item of the queue items at"
    " {items.put(1)} in produce and waits in turn for the lock lock at {with lock:} in produce,"
    ' held by thread \\d+ "MainThread" since .* in item',
    "room": f"\\(room in the queue items, out of which {NO_OTHER} takes an item\\), at"
    " {items.put(2)} in room",
    "barrier": f"\\(the barrier meet \\(2 of 3 are there\\), to which {NO_OTHER} comes\\)",
    "semaphore": HELD.format("holder") + "most likely has held the semaphore slots since"
    " {with slots:} in hold and is sleeping",
    "bounded_by_two": "\\(the semaphore slots, held by thread \\d+ since .* in (hold|sleep), thread"
    " \\d+ since .* in (hold|sleep)\\)",
    "other_loop": HELD.format("loop") + "runs the coroutine part in its event loop and is idle in"
    " its asyncio event loop \\(task \\S+ is sleeping at .* in part\\)",
    "no_loop": f"\\(the future found, which {NO_OTHER} sets\\)",
    "some": HELD.format("uploads_0") + "runs a task \\(any of 3 tasks will do\\) and is sleeping",
    "first_of_two": HELD.format("uploads_\\d") + "runs a task \\(any of 2 tasks will do\\) and",
    "processes": "\\(the task sleep, which its pool of processes has \\(\\d+\\)\\)",
    "at_exit": "is at exit, in flush \\(atexit\\), and is "
    + HELD.format("holder") + "has held the lock lock since .* in hold and is sleeping",
}  # fmt: skip
"""What is said of waits that may end, as a regular expression; in braces, a line of the program."""
DEADLOCKS: dict[str, str] = {
    "bounded": 'waits for the semaphore slots at .* in bounded, held by thread \\d+ "holder" since'
    ' {with slots:} in hold; thread \\d+ "holder" waits for the lock lock',
    "own_loop": "waits for the coroutine part at .* in main, which its own event loop is to run",
    "begun_in_own_loop": "the coroutine part at .* in main, which its own event loop is to run",
    "pool_and_loop": "waits for the coroutine part at .* run by the event loop of thread \\d+"
    ' "MainThread"',
    "every": "waits for the task nothing at .* in whole, which is queued behind its own",
}
"""What is said of waits that cannot end."""
ALWAYS = {"event", "item", "semaphore", "own_loop", "some", "first_of_two", "every", "at_exit"}
"""The ways that always run; the others are told by the same rules."""


def cases(said: dict[str, str]) -> list[object]:
    """The ways of a table, those that are not always run by night only."""
    return [pytest.param(way, marks=() if way in ALWAYS else [pytest.mark.nightly]) for way in said]


def pattern(words: str) -> str:
    """A regular expression with the lines of the program that stand in its braces."""
    lines = program_path("told_waits").read_text().splitlines()

    def places(match: re.Match[str]) -> str:
        found = [str(n) for n, line in enumerate(lines, 1) if match[1] in line]
        return f"told_waits\\.py:({'|'.join(found)})"

    return re.sub(r"\{(.+?)\}", places, words)


def said_of(target: Target, words: str) -> str:
    """What `hang` says, once that is in it."""

    def look() -> str | None:
        done = target.run(str(target.pid), "hang")
        assert (done.returncode, done.stderr) == (0, "")
        said = " ".join(done.stdout.split())
        return said if re.search(words, said) else None

    return wait_until(look, words)


@pytest.mark.parametrize("way", cases(SAYS))
def test_who_is_waited_for_is_told(program: StartProgram, way: str) -> None:
    """The thread that will end the wait by its code, or that nobody is known to; it is no hang."""
    target = program("told_waits", way, PROBING="all")
    target.wait_for_output("ready")
    try:
        said = said_of(target, pattern(SAYS[way]))
    finally:
        for child in children_of(target.pid):  # a pool's process outlives one that is killed
            os.kill(child, signal.SIGKILL)
    assert said.startswith("PROCESS: ")
    assert "deadlock" not in said


@pytest.mark.parametrize("way", cases(DEADLOCKS))
def test_what_cannot_end_is_a_deadlock(program: StartProgram, way: str) -> None:
    """All that could end the wait is waiting for it: a hang at once."""
    target = program("told_waits", way, PROBING="all")
    target.wait_for_output("ready")
    said = said_of(target, "^HANG: ")
    assert "is in a deadlock" in said
    assert re.search(pattern(DEADLOCKS[way]), said), said
    assert target.run(str(target.pid), "hang", "--check").returncode == 1


def test_the_backtrace_tells_it_below_each_thread(program: StartProgram) -> None:
    """Who sets what, and which thread is in a function that runs at exit."""
    target = program("told_waits", "event", PROBING="all")
    target.wait_for_output("ready")
    words = pattern(
        r'  waits for the event loaded at \S+ in event, which by its code thread \d+ "loader" sets'
        r" at {loaded.set()} in load"
    )
    pid = str(target.pid)
    wait_until(lambda: re.search(words, target.run(pid, "backtrace").stdout), words)
    other = program("told_waits", "at_exit", PROBING="all")
    other.wait_for_output("ready")
    shown = other.run(str(other.pid), "backtrace").stdout
    assert re.search(r'Thread \d+ "MainThread" \(main, at exit, ', shown)
