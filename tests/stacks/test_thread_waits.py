"""Who holds what a thread waits for, and which threads wait for each other for ever."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

import probing
from probing.messages.common import Awaited, Backtrace, ThreadStack
from probing.stacks import thread_waits
from probing.stacks.thread_waits import deadlocks
from tests.harness.targets import Target, program_path, start_program, wait_until

pytestmark = pytest.mark.anypython

CIRCLES = {
    *("attributes", "module_names", "rlocks", "conditions", "calls", "three"),
    *("joining", "importing", "twice"),
}
LOOKS = 12


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """All scenarios of `lock_waits` side by side in one process."""
    home, cwd = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("lock_waits")
    target = start_program("lock_waits", home=home, cwd=cwd, PROBING="all")
    try:
        target.wait_for_agent()
        target.wait_for_output("ready")
        yield target
    finally:
        target.reap()


@pytest.fixture
def seen(holding: Target, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Backtrace]:
    """Looks at it."""
    monkeypatch.setenv("PROBING_HOME", str(holding.env["PROBING_HOME"]))
    job = probing.connect(holding.pid)

    def ask() -> Backtrace | None:
        trace = job.backtrace()
        return trace if trace.source == "agent" else None  # on a busy machine it may be late

    return lambda: wait_until(ask, "an answer of the agent")


def circles(trace: Backtrace) -> set[str]:
    """The scenarios whose threads are said to be in a deadlock; each of them whole."""
    found = [{one.name.rpartition("-")[0] for one in circle} for circle in deadlocks(trace.threads)]
    assert all(len(names) == 1 for names in found), found
    assert all(len(circle) == 3 for circle in deadlocks(trace.threads) if is_of(circle, "three"))
    return {name for names in found for name in names}


def is_of(circle: tuple[ThreadStack, ...], scenario: str) -> bool:
    """Whether a circle is that of a scenario."""
    return circle[0].name.startswith(f"{scenario}-")


def settled_trace(seen: Callable[[], Backtrace]) -> Backtrace:
    """A look once all that end in a deadlock are there."""

    def look() -> Backtrace | None:
        trace = seen()
        return trace if circles(trace) >= CIRCLES else None

    return wait_until(look, "all deadlocks")


def awaited(trace: Backtrace, name: str) -> Awaited:
    """What the thread of that name waits for."""
    found = next(thread for thread in trace.threads if thread.name == name).awaits
    assert found is not None, name
    return found


def number(trace: Backtrace, name: str) -> int:
    """The kernel's number of the thread of that name."""
    return next(thread.thread_id for thread in trace.threads if thread.name == name)


def line_of(text: str) -> int:
    """The number of the first line of the program that holds some text."""
    lines = program_path("lock_waits").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def test_every_deadlock_is_seen_and_nothing_else_is_called_one(
    seen: Callable[[], Backtrace],
) -> None:
    """Deadlocks of every kind of lock are found; who only holds one for a while is in none."""
    trace = settled_trace(seen)
    for _ in range(LOOKS):
        assert circles(trace) == CIRCLES
        trace = seen()


def test_both_lines_of_a_deadlock_are_told(seen: Callable[[], Backtrace]) -> None:
    """Each thread with what it waits for and where, and since where the other one holds that."""
    trace = settled_trace(seen)
    circle = next(one for one in deadlocks(trace.threads) if is_of(one, "attributes"))
    text = thread_waits.deadlock_text(circle)
    forth, back = line_of("with self.one.lock:"), line_of("with self.other.lock:")
    one, other = (number(trace, f"attributes-{n}") for n in (1, 2))
    assert text.startswith("a deadlock: ")
    assert (
        f'thread {one} "attributes-1" waits for the lock self.other.lock at lock_waits.py' in text
    )
    assert f', held by thread {other} "attributes-2" since lock_waits.py:' in text
    assert {f"lock_waits.py:{n}" for n in (forth, back)} <= set(
        re.findall(r"lock_waits\.py:\d+", text)
    )
    assert "most likely" not in text


def test_how_sure_it_is_who_holds_a_lock(seen: Callable[[], Backtrace]) -> None:
    """A call before a `try` that gives the lock back makes it likely; a `with` makes it certain."""
    trace = settled_trace(seen)
    assert not awaited(trace, "calls-1").is_certain
    circle = next(one for one in deadlocks(trace.threads) if is_of(one, "calls"))
    assert thread_waits.deadlock_text(circle).startswith("most likely a deadlock: ")
    for name in ("attributes-1", "module_names-1", "rlocks-1", "conditions-1", "three-1"):
        assert awaited(trace, name).is_certain, name


def test_imports_and_ends_of_threads_have_names(seen: Callable[[], Backtrace]) -> None:
    """An import is told with its module and who imports it where; so is a thread that must end."""
    trace = settled_trace(seen)
    found = awaited(trace, "importing-1")
    assert found.what == "the import of module wanting_a_lock"
    assert found.holder_id == number(trace, "importing-2")
    assert re.fullmatch(r"lock_waits\.py:\d+ in loading", found.since or "")
    assert awaited(trace, "importing-2").holder_id == number(trace, "importing-1")
    joined = awaited(trace, "joining-1")
    assert (joined.what, joined.holder_id) == (
        "thread joining-2 to end",
        number(trace, "joining-2"),
    )


def test_a_lock_that_is_held_for_a_while_has_its_holder(seen: Callable[[], Backtrace]) -> None:
    """Nothing is wrong, and who holds it since where is told all the same."""
    trace = settled_trace(seen)
    found = awaited(trace, "held-1")
    assert found.holder_id == number(trace, "held-2")
    assert found.since == f"lock_waits.py:{line_of('def holding') + 1} in holding"
    assert found.is_settled
    assert not found.has_limit


def test_locks_between_processes(seen: Callable[[], Backtrace]) -> None:
    """A thread of this process that has one is named; of another process it is said that it has."""
    trace = settled_trace(seen)
    found = awaited(trace, "shared-1")
    assert (found.what, found.holder_id) == (
        "the lock own between processes",
        number(trace, "shared-2"),
    )
    assert found.since == f"lock_waits.py:{line_of('with own:')} in holding"
    waits = {
        thread_waits.wait_text(trace.threads, thread).partition(" at ")[0]: thread.awaits.who
        for thread in trace.threads
        if thread.name in {"shared-3", "shared-4"} and thread.awaits is not None
    }
    assert waits == {
        "the lock childs between processes": "held by another process, and by which is not known",
        "the semaphore counted between processes": "whose holders are not known",
    }


def test_who_gives_up_after_some_time_is_in_no_deadlock(seen: Callable[[], Backtrace]) -> None:
    """The holders are told, and that the wait ends."""
    trace = settled_trace(seen)
    found = awaited(trace, "limits-1")
    assert found.holder_id == number(trace, "limits-2")
    assert found.has_limit


def test_what_nobody_holds_has_no_holder(seen: Callable[[], Backtrace]) -> None:
    """A lock used as a signal, and a condition that is waited for, belong to nobody."""
    trace = settled_trace(seen)
    found = awaited(trace, "signals-1")
    assert (found.holder_id, found.who) == (None, "whose owner is not known")
    for _ in range(LOOKS):
        trace = seen()
        waiter = number(trace, "lent-1")
        pollers = [awaited(trace, f"lent-{n}") for n in (2, 3) if has_wait(trace, f"lent-{n}")]
        assert all(found.holder_id != waiter for found in pollers)


def has_wait(trace: Backtrace, name: str) -> bool:
    """Whether the thread of that name waits for what somebody may have."""
    return next(thread for thread in trace.threads if thread.name == name).awaits is not None


def test_commands_name_the_holder(holding: Target, seen: Callable[[], Backtrace]) -> None:
    """The backtrace begins with the deadlocks, each wait has its holder, and SQL has both."""
    trace = settled_trace(seen)

    def look() -> str | None:
        shown = holding.run(str(holding.pid), "backtrace").stdout
        return shown if shown.count("a deadlock: ") == len(CIRCLES) else None

    head, *threads = wait_until(look, "all deadlocks by the agent").split("\n\n")
    assert len([line for line in head.splitlines() if "a deadlock: " in line]) == len(CIRCLES)
    held = next(text for text in threads if '"held-1"' in text)
    holder = f', held by thread {number(trace, "held-2")} "held-2" since lock_waits.py:'
    assert "  waits for the lock lock at lock_waits.py:" in held
    assert holder in held
    rows = probing.connect(holding.pid).query(
        "SELECT awaits, holder_thread_id FROM python.threads WHERE thread_name = 'held-1'"
    )
    assert rows.to_pylist() == [
        {"awaits": "the lock lock", "holder_thread_id": number(trace, "held-2")}
    ]


def test_hang_tells_of_a_deadlock(program: Callable[..., Target]) -> None:
    """Two locks taken in opposite order are a hang at once, with both lines."""
    target = program("stuck", "lock", PROBING="all")
    target.wait_for_agent()
    target.wait_for_output("ready")
    pid = str(target.pid)

    def ask() -> subprocess.CompletedProcess[str] | None:
        done = target.run(pid, "hang", "--check")
        return done if done.stdout.startswith("HANG") else None

    done = wait_until(ask, "the verdict")
    said = " ".join(done.stdout.split())
    assert done.returncode == 1
    assert f"HANG: process {pid} is in a deadlock: thread " in said
    assert "waits for the lock second at stuck.py:" in said
    assert re.search(r', held by thread \d+ "second-then-first" since stuck\.py:', said)
    assert "waits for the lock first at stuck.py:" in said


def thread(number: int, holder: int | None, *, ends: bool = False) -> ThreadStack:
    """A thread that waits for another one, if for any."""
    awaits = Awaited(
        kind="lock", what="the lock x", holder_id=holder, is_settled=True, has_limit=ends
    )
    return ThreadStack(
        thread_id=number,
        name=f"t{number}",
        is_main=number == 1,
        frames=(),
        awaits=awaits if holder is not None else None,
    )


def test_chains_end_in_circles_or_with_whoever_waits_for_nothing() -> None:
    """Who waits for one in a deadlock is stuck, too, unless its wait ends; it is in no circle."""
    threads = [thread(1, 2), thread(2, 3), thread(3, 2), thread(4, 2, ends=True), thread(5, None)]
    assert [t.thread_id for t in thread_waits.chain(threads, threads[0])] == [1, 2, 3]
    assert [[t.thread_id for t in circle] for circle in deadlocks(threads)] == [[2, 3]]
    stuck = [t.thread_id for t in threads if thread_waits.is_stuck_behind(threads, t)]
    assert stuck == [1, 2, 3]
    assert deadlocks([thread(1, 1)])[0][0].thread_id == 1
