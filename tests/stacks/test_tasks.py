"""What takes turns on threads: tasks of asyncio, and threads that others have changed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import probing
from tests.harness.stacks import taken_by
from tests.harness.targets import Target, program_path, wait_until

pytestmark = pytest.mark.anypython


@pytest.fixture
def started(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Target]:
    """Starts a program and waits until it is where it stays."""

    def start(name: str) -> Target:
        target = program(name, PROBING="all")
        monkeypatch.setenv("PROBING_HOME", str(target.env["PROBING_HOME"]))
        target.wait_for_agent()
        target.wait_for_output("ready")
        return target

    return start


def test_tasks_are_shown_with_what_they_wait_for(started: Callable[[str], Target]) -> None:
    """Each task of the job with its coroutines, innermost first; none of the agent's."""
    target = started("tasks")
    trace = taken_by("agent", probing.connect(target.pid).backtrace)
    main = trace.threads[0]
    assert main.waiting == "idle in its asyncio event loop"
    found = {task.name: task for task in trace.tasks}
    waits = {name: task.waiting for name, task in found.items()}
    (first,) = [name for name in found if name.startswith("Task-")]
    lines = program_path("tasks").read_text().splitlines()
    first_with, second_with = (
        next(n for n, line in enumerate(lines, 1) if text in line)
        for text in ("async with lock:", "async with first:")
    )
    keeping = first_with + lines[first_with:].index("    async with lock:") + 1
    circle = "in a circle of tasks that wait for each other (circle-10, circle-9)"
    lock = "waiting for a lock (asyncio)"
    since = f"since tasks.py:{second_with} in take_both, {circle}"
    assert waits == {
        first: "waiting for a future",
        "sleeper": "sleeping",
        "taker": f"{lock}, whose owner is not known",
        "getter": "waiting for an item from a queue",
        "follower": "waiting for task sleeper",
        "keeper": "sleeping",
        "heir": f"{lock}, held by task keeper since tasks.py:{keeping} in keep",
        "circle-9": f"{lock}, held by task circle-10 {since}",
        "circle-10": f"{lock}, held by task circle-9 {since}",
        "told-1": "waiting for an event of asyncio",
    }
    names = [task.name for task in trace.tasks]
    others = ["follower", "getter", "heir", "keeper", "sleeper", "taker", "told-1"]
    assert names == [first, "circle-9", "circle-10", *others]
    assert [task.name for task in probing.connect(target.pid).backtrace().tasks] == names
    funcs = [frame.func.rpartition(".")[2] for frame in found["sleeper"].frames]
    assert funcs == ["sleep", "sleep_long", "nested"]
    assert found["sleeper"].frames[1].line == "await asyncio.sleep(10**6)"
    assert {task.thread_id for task in trace.tasks} == {main.thread_id}
    assert {task.kind for task in trace.tasks} == {"asyncio"}


def test_commands_tell_of_tasks(started: Callable[[str], Target]) -> None:
    """The backtrace has a block for each, and `hang` says what they wait for and where."""
    target = started("tasks")
    pid = str(target.pid)
    words = f'Task "sleeper" (on thread {pid}): sleeping'
    wait_until(lambda: words in target.run(pid, "backtrace").stdout, words)

    def ask() -> str | None:
        said = " ".join(target.run(pid, "hang").stdout.split())
        return said if "is idle in its asyncio event loop (task " in said else None

    said = wait_until(ask, "an answer of the agent")
    assert re.search(r"task \S+ is (waiting for|sleeping) .*at tasks\.py:\d+ in ", said)


@pytest.mark.parametrize("order", ["last", "first"])
def test_the_agent_answers_where_waiting_and_threads_are_others(
    order: str, program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under eventlet and gevent: the server lives, and the main thread has its own stack."""
    target = program("patched", order, PROBING="0" if order == "first" else "all")
    monkeypatch.setenv("PROBING_HOME", str(target.env["PROBING_HOME"]))
    target.wait_for_output("ready")
    target.wait_for_agent()
    job = probing.connect(target.pid)

    def look() -> bool:
        trace = job.backtrace()
        return trace.source == "agent" and trace.threads[0].waiting == "sleeping"

    wait_until(look, "an answer of the agent")
    (main,) = job.backtrace().threads
    assert (main.name, main.thread_id) == ("MainThread", target.pid)
    assert main.frames[0].func == "sleep_long"
    assert not any("server failed" in problem for problem in job.status().problems)
