"""Processes that stand still for a good reason, each beside one that hangs in the same way."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import pytest

from probing.cli.render.ranks.hang import render_verdict
from probing.cli.reports.following import Following
from probing.client.recent_steps import STILL
from probing.cluster.job.membership import Member
from probing.diagnosis.hang import Doing, RankEvidence, Work, judge
from probing.diagnosis.hang.seen import collection
from probing.diagnosis.hang.seen.collection import Stacks, evidence_of, may_get_on
from probing.diagnosis.hang.seen.record import NEWEST
from probing.messages.card import Card
from probing.messages.common import Backtrace, Frame, TaskStack, ThreadStack, WorkDone
from tests.harness.cards import card_of
from tests.unit.cli.overview_samples import HEALTHY
from tests.unit.doctor import made
from tests.unit.doctor.made import MadeProcess, signs, steps
from tests.unit.ranks.hang_samples import LATE, STILL_S, evidence, waiting, waiting_but

pytestmark = pytest.mark.anypython

RUNNING = Doing(kind="python", words="runs Python code", where="train.py:40 in score")
LOCKED = Doing(kind="lock", words="is in a deadlock", where="a.py:2 in f", is_deadlock=True)


def alone(**facts: Any) -> RankEvidence:
    """A process of no job that has stood still for ten minutes."""
    plain = evidence(0, (), world_size=None, groups=(), still_s=700.0, doing=RUNNING)
    return dataclasses.replace(plain, rank=None, **facts)


class Carded(MadeProcess):
    """Answers with rows, and with a card."""

    card = card_of(1, 1)

    def status(self) -> Card:
        """Who it is."""
        return self.card


@pytest.mark.parametrize("is_recording", [True, False])
def test_who_is_asked_by_an_address_says_that_it_is_not_recorded(*, is_recording: bool) -> None:
    """It has no folder here to see that in."""
    process: Any = Carded({}, {})
    card = card_of(1, 1, is_recording=is_recording)
    seen_now = Following(process)._renewed(HEALTHY, card)
    assert seen_now.state == ("idle" if is_recording else "not recorded")


def test_a_process_that_is_not_recorded() -> None:
    """That its record stands still says nothing of it; what no time heals is a hang."""
    verdict = judge([alone(is_paused=True, work=Work(cpu=1.0))])
    assert (verdict.kind, verdict.is_hang, verdict.still_s) == ("process", False, None)
    assert verdict.headline == (
        "process 4100 runs Python code, at train.py:40 in score. Nothing tells whether it gets on:"
        " its recording is off (`config recording=1` turns it on)."
    )
    assert judge([alone()]).is_hang
    for facts in ({"state": "stopped"}, {"doing": LOCKED}):
        assert judge([alone(is_paused=True, **facts)]).is_hang


def test_ranks_that_are_not_recorded() -> None:
    """Whoever is in no collective just then is not missing from it."""
    off = [dataclasses.replace(e, is_paused=True, calls=()) for e in waiting_but({})]
    off[2] = evidence(2, (), is_paused=True, doing=RUNNING)
    verdict = judge(off)
    assert (verdict.kind, verdict.is_hang, verdict.causes) == ("unknown", False, ())
    assert render_verdict(verdict, width=100).startswith("UNKNOWN: Ranks 0-1,3: waiting for")
    assert verdict.headline.endswith(
        "rank 2: runs Python code, at train.py:40 in score. Nothing tells whether ranks 0-3 get on:"
        " their recording is off (`config recording=1` turns it on)."
    )
    for facts in ({"state": "stopped"}, {"state": "dead", "moved": None}, {"doing": LOCKED}):
        gone = judge([*off[:2], dataclasses.replace(off[2], **facts), off[3]])
        assert gone.is_hang
        assert [cause.rank for cause in gone.causes] == [2]


def test_one_rank_that_is_not_recorded() -> None:
    """The others tell whether the job goes on, and it is not named as the one who is missing."""
    off = evidence(2, (), is_paused=True, doing=RUNNING, still_s=700.0)
    verdict = judge(waiting_but({2: off}))
    assert (verdict.kind, verdict.is_hang, verdict.causes) == ("unknown", True, ())
    assert verdict.still_s == STILL_S
    assert "Nothing tells whether rank 2 gets on: its recording is off" in verdict.headline
    moving = [dataclasses.replace(waiting(rank), moved=True) for rank in (0, 1, 3)]
    assert judge([*moving, off]).kind == "healthy"
    assert judge(waiting_but({2: evidence(2, LATE)})).causes[0].rank == 2


@pytest.mark.parametrize("is_recording", [True, False])
def test_the_card_tells_whether_a_process_is_recorded(is_recording: bool) -> None:
    """Only of a record that does not grow; calls that were open as recording ended say nothing."""
    opened = {"process_group": "0", "seq": 1, "op": "all_reduce", "is_async": False, "start_ns": 1}
    process: Any = Carded({"steps": steps(3), "collectives": [opened]}, {})
    process.card = card_of(1, 1, is_recording=is_recording)
    member = Member(rank=None, host="here", pid=1, world_size=None, endpoint="1")
    stacks = Stacks(state="answering", trace=Backtrace(pid=1, source="agent", threads=()))
    row = process.query(NEWEST).to_pylist()[0]
    newest = (row["newest_ns"], row["ended_ns"], row["done"])
    found = evidence_of(process, member, newest, stacks)
    assert (found.moved, found.is_paused) == (False, not is_recording)
    assert len(found.calls) == int(is_recording)
    moving = evidence_of(process, member, (0, 0, 0), stacks)
    assert (moving.moved, moving.is_paused, len(moving.calls)) == (True, False, 1)


def thread_of(number: int, waiting: str, *, cpu_s: float = 0.0, file: str = "train.py") -> Any:
    """A thread that stands in a function of a file; number 1 is the main thread."""
    frames = (Frame(func="run", file=f"/job/{file}", lineno=number),)
    return ThreadStack(
        thread_id=number, name=f"t{number}", is_main=number == 1, frames=frames, waiting=waiting,
        cpu_s=cpu_s,
    )  # fmt: skip


def seen(
    rows: dict[str, Any], *threads: ThreadStack, used_s: float = 0.0, **facts: Any
) -> RankEvidence:
    """A process that was looked at twice, a second apart, in which thread 2 used a processor."""
    looks = [
        Backtrace(
            pid=1, work=WorkDone(time_s=at_s), **{"source": "agent", **facts},
            threads=tuple(dataclasses.replace(one, cpu_s=at_s * used_s if one.thread_id == 2 else 0)
                          for one in threads),
        )
        for at_s in (1.0, 2.0)
    ]  # fmt: skip
    member = Member(rank=None, host="here", pid=1, world_size=None, endpoint="1", started_ns=1)
    process: Any = Carded(rows, {})
    stacks = Stacks(state="answering", trace=looks[0])
    found = evidence_of(process, member, None, stacks, again=looks[1])
    return dataclasses.replace(found, moved=False, step=9, still_s=100.0, median_step_s=0.5)


IN_THREAD = {"torch_trace": [{"stage": "step", "start_ns": 5, "thread_id": 2}]}
SELECTS = thread_of(1, "waiting for input or output (poll)", file="core_worker.py")


def test_a_training_in_another_thread() -> None:
    """The thread of the last step is judged, between calls of modules, too, not the main one."""
    trains = thread_of(2, "running")
    works = seen(IN_THREAD, SELECTS, trains, used_s=0.9)
    assert works.doing is not None
    assert works.doing.where == "train.py:2 in run"
    assert works.work is not None
    assert works.work.cpu == pytest.approx(0.9)
    assert judge([works]).kind == "slow"
    hangs = judge([seen(IN_THREAD, SELECTS, thread_of(2, "waiting for a lock"))])
    assert hangs.is_hang
    assert "it is waiting for a lock, at train.py:2 in run" in hangs.headline


def test_a_main_thread_that_hangs_beside_a_training_thread() -> None:
    """It is judged where that one has ended, and where it rests until it is given the next step."""
    locked = thread_of(1, "waiting for a lock", file="serve.py")
    for others in ((), (thread_of(2, "idle: a pool's thread without work"),)):
        hangs = judge([seen(IN_THREAD, locked, *others)])
        assert hangs.is_hang
        assert "it is waiting for a lock, at serve.py:1 in run" in hangs.headline


def test_a_main_thread_at_its_end_leaves_a_training() -> None:
    """Its process is looked at twice, for the thread that trains may get on."""
    exits = thread_of(1, "waiting at exit for the threads that are no daemons")
    trace = Backtrace(pid=1, source="agent", threads=(exits, thread_of(2, "running")))
    assert may_get_on(Stacks(state="answering", trace=trace))
    assert judge([seen(IN_THREAD, exits, thread_of(2, "running"), used_s=0.9)]).kind == "slow"
    assert judge([seen({}, exits, thread_of(2, "running"), used_s=0.9)]).is_hang


def test_the_threads_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record has the numbers from inside, and its stacks those from outside."""
    outside = dataclasses.replace(thread_of(2, "running"), thread_id=702)
    trace = Backtrace(pid=1, source="agent", threads=(SELECTS, outside))
    process: Any = SimpleNamespace(folder=SimpleNamespace(pid=1))
    record: Any = {"modules": [], "trains": [{"thread_id": 2}]}
    monkeypatch.setattr(collection, "outer_numbers", lambda _: {2: 702})
    assert collection._thread(process, (), record, trace) == 702


LOOP = thread_of(1, "idle in its asyncio event loop", file="site-packages/asyncio/base_events.py")
SERVER = thread_of(1, "idle: a server without requests", file="serve.py")
KERNELS = TaskStack(
    kind="asyncio", name="dispatch", thread_id=1, waiting="waiting for an item from a queue",
    frames=(Frame(func="get", file="/x/site-packages/ipykernel/kernelbase.py", lineno=7),),
)  # fmt: skip
CELL = dataclasses.replace(
    KERNELS, frames=(Frame(func="<module>", file="/tmp/ipykernel_7/1.py", lineno=2),)
)
PACKAGE = dataclasses.replace(
    KERNELS,
    name="fit",
    frames=(
        Frame(func="get", file="/usr/lib/python3.11/asyncio/queues.py", lineno=9),
        Frame(func="fit", file="/x/site-packages/itstrains/loop.py", lineno=7),
    ),
)


@pytest.mark.parametrize("main", [LOOP, SERVER])
def test_a_process_that_waits_for_the_next_cell_or_request(main: ThreadStack) -> None:
    """It has trained and trains no more, so that the pace of its steps says nothing."""
    verdict = judge([seen({}, main, tasks=(KERNELS,))])
    assert (verdict.kind, verdict.is_hang, verdict.outcome) == ("healthy", False, "fine")
    assert verdict.headline.startswith(f"process 1 is {main.waiting}")
    assert "nothing of it is seen to train" in verdict.headline


def test_a_notebook_whose_cell_hangs() -> None:
    """A cell that waits is a task of the loop, or where the main thread is; or it has a thread."""
    for hangs in (
        seen({}, LOOP, tasks=(KERNELS, CELL)),
        seen({}, LOOP, tasks=(PACKAGE,)),  # of an installed package
        seen({}, LOOP, tasks=(KERNELS,), source="py-spy"),  # which sees no tasks
        seen({}, thread_of(1, "waiting for a lock"), tasks=(KERNELS,)),
        seen(IN_THREAD, LOOP, thread_of(2, "waiting for a lock"), tasks=(KERNELS,)),
        dataclasses.replace(seen({}, LOOP, tasks=(KERNELS,)), ending="it is leaving with KeyError"),
    ):
        assert judge([hangs]).is_hang


PACKAGES, STDLIB = "/x/lib/python3.11/site-packages", "/usr/lib/python3.11"


def _at(*files: str, waiting: str = "idle in its asyncio event loop") -> ThreadStack:
    """The main thread, in functions of these files, the innermost first."""
    frames = tuple(Frame(func="run", file=file, lineno=1) for file in files)
    return dataclasses.replace(thread_of(1, waiting), frames=frames)


_LAUNCHED = (f"{PACKAGES}/ipykernel/kernelapp.py", f"{PACKAGES}/ipykernel_launcher.py")
KERNEL = _at(f"{STDLIB}/selectors.py", f"{PACKAGES}/tornado/platform/asyncio.py", *_LAUNCHED)
BEATS = dataclasses.replace(CELL, waiting="sleeping")
IN_NOTEBOOK = "process 1 is idle in a notebook, waiting for the next cell: no hang."
PROMPTS: dict[str, tuple[ThreadStack, tuple[TaskStack, ...], dict[str, Any], str]] = {
    "kernel": (KERNEL, (KERNELS,), {}, IN_NOTEBOOK),
    "from outside": (KERNEL, (), {"source": "py-spy"}, IN_NOTEBOOK),
    "beside a task that sleeps": (KERNEL, (KERNELS, BEATS), {}, IN_NOTEBOOK),
    "in a window's loop": (
        _at(f"{STDLIB}/tkinter/__init__.py", f"{PACKAGES}/ipykernel/eventloops.py", *_LAUNCHED,
            waiting="sleeping"),
        (), {}, IN_NOTEBOOK,
    ),
    "in a loop in C": (
        _at(f"{PACKAGES}/tornado/platform/asyncio.py", *_LAUNCHED,
            waiting="waiting for input or output (epoll_wait)"),
        (), {}, IN_NOTEBOOK,
    ),
    "embedded": (
        _at(f"{STDLIB}/selectors.py", f"{PACKAGES}/ipykernel/embed.py", "/job/train.py"),
        (), {}, IN_NOTEBOOK.replace(":", ", at train.py:1 in run:"),
    ),
    "at the prompt": (
        _at(f"{STDLIB}/selectors.py", f"{PACKAGES}/prompt_toolkit/application/application.py",
            f"{PACKAGES}/IPython/terminal/interactiveshell.py"),
        (), {}, "process 1 is idle at the prompt of IPython, waiting for the next input: no hang.",
    ),
}  # fmt: skip
"""Where the main thread is, and the tasks of its loop."""


@pytest.mark.parametrize("way", PROMPTS)
@pytest.mark.parametrize("still_s", [1.0, 100.0])
def test_a_pause_between_cells_is_nothing_wrong(way: str, still_s: float) -> None:
    """However the kernel waits, as soon as it does, and whatever an earlier cell has left open."""
    main, tasks, how, headline = PROMPTS[way]
    found = dataclasses.replace(seen({}, main, tasks=tasks, **how), still_s=still_s)
    found = dataclasses.replace(found, module="net.0", ending="its thread t9 ended with KeyError")
    verdict = judge([found])
    assert (verdict.kind, verdict.headline) == ("healthy", headline)
    of = made.facts({"steps": steps(20)}, verdict=verdict)
    assert [*signs("hang", of), *signs("waits", of), *signs("stands-still", of)] == []


@pytest.mark.parametrize(
    ("main", "tasks"),
    [
        (_at("/tmp/ipykernel_7/1.py", f"{PACKAGES}/IPython/core/interactiveshell.py", *_LAUNCHED,
             waiting="waiting for a lock"), ()),
        (_at(f"{STDLIB}/threading.py", f"{PACKAGES}/IPython/core/magics/basic.py", *_LAUNCHED,
             waiting="waiting for a lock"), ()),
        (KERNEL, (KERNELS, CELL)),
        (KERNEL, (PACKAGE,)),
    ],
)  # fmt: skip
def test_a_cell_that_waits_is_no_pause(main: ThreadStack, tasks: tuple[TaskStack, ...]) -> None:
    """It runs on the main thread, or is a task that awaits something."""
    assert judge([seen({}, main, tasks=tasks)]).is_hang


def test_who_was_seen_to_wait_for_code_stays_idle_until_it_makes_a_step() -> None:
    """Until the next whole look nobody looks at its stack again."""
    process: Any = Carded({"steps": steps(20)}, {})
    known = dataclasses.replace(HEALTHY, state="idle", doing="is idle in a notebook")
    assert Following(process)._renewed(known, process.card).state == "idle"
    other = dataclasses.replace(HEALTHY, state="idle")
    assert Following(process)._renewed(other, process.card).state == STILL


def test_a_key_of_the_store_that_a_rank_may_set_which_was_not_seen() -> None:
    """Nobody is to blame of those that wait; where all ranks are seen and wait, all are."""
    taking = Doing(kind="store", words="is waiting for a key of the store", where="train.py:9 in f")
    asked = [evidence(rank, (), doing=taking) for rank in range(3)]
    far = evidence(3, (), doing=None, state="unreachable", moved=None, still_s=None)
    for ranks in (asked, [*asked, far]):
        verdict = judge(ranks, world=range(4))
        assert (verdict.kind, verdict.causes, verdict.victims) == ("unseen", (), (0, 1, 2))
        assert verdict.headline == (
            "Ranks 0-2 are waiting for a key of the store at train.py:9 in f, which rank 3 of the"
            " job may set."
        )
        assert verdict.confidence == "low: nothing is known of rank 3"
    gone = dataclasses.replace(far, state="dead", ended_ns=1, ending="it ended")
    for last in (evidence(3, (), doing=taking), gone):
        verdict = judge([*asked, last], world=range(4))
        assert (verdict.kind, verdict.is_hang) == ("store", True)
        assert verdict.confidence.startswith("high: ")


PAUSED = dataclasses.replace(thread_of(1, "stopped by a debugger"), state="t")
TRACED = Doing(kind="stopped", words="is stopped by a debugger", where="train.py:1 in run")


def test_who_is_let_go_by_a_debugger_was_not_stopped() -> None:
    """Whoever reads its C functions stops it for a moment; the second look counts, and its work."""
    thread = dataclasses.replace(thread_of(1, "running"), cpu_s=0.9)
    member = Member(rank=None, host="here", pid=1, world_size=None, endpoint="1", started_ns=1)
    first, again = (
        Backtrace(pid=1, source=source, threads=(one,), work=WorkDone(time_s=at_s))
        for source, one, at_s in (("py-spy", PAUSED, 1.0), ("agent", thread, 2.0))
    )
    stacks = Stacks(state="stopped", trace=first)
    assert may_get_on(stacks)
    process: Any = Carded({}, {})
    found = evidence_of(process, member, None, stacks, again=again)
    assert (found.state, found.work is not None and found.work.cpu) == ("answering", 0.9)
    assert judge([dataclasses.replace(found, moved=True)]).kind == "healthy"
    still = evidence_of(process, member, None, stacks, again=first)
    assert (still.state, still.is_debugged) == ("stopped", True)


@pytest.mark.parametrize(("still_s", "is_hang"), [(4.0, False), (15.0, True)])
def test_a_debugger_is_no_signal(still_s: float, is_hang: bool) -> None:
    """It may let the process go at any time, so that it must last; `kill -CONT` is no help."""
    facts: Any = {"state": "stopped", "doing": TRACED, "still_s": still_s}
    one = judge([alone(**facts)])
    ranks = waiting_but({2: evidence(2, LATE, **facts)})
    job = judge([dataclasses.replace(e, still_s=still_s) for e in ranks])
    for verdict in (one, job):
        assert (verdict.is_hang, verdict.causes[0].what) == (
            is_hang, "is stopped by a debugger, at train.py:1 in run",
        )  # fmt: skip
        assert not re.search("-CONT|breakpoint", " ".join(verdict.next_steps))
        assert any("TracerPid" in step for step in verdict.next_steps)
    by_signal = judge([alone(**facts | {"doing": dataclasses.replace(TRACED, words="is stopped")})])
    assert by_signal.is_hang
    assert "kill -CONT" in by_signal.next_steps[-1]


def test_a_running_debugged_process_is_no_hang() -> None:
    """Its record grew between the looks."""
    assert judge([alone(state="stopped", doing=TRACED, moved=True)]).kind == "healthy"
