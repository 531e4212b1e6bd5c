"""Code that does its worst: a typed answer each time, and a training that goes on."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

import probing
from probing.errors import ProbingError
from probing.linux import process
from probing.messages.common import EvalResult
from tests.faults import Reached
from tests.harness.evals import answer_of_run, patience
from tests.harness.targets import DEADLINE_S, Target, start_training

TAKEN_BACK = """
def g(): pass
try:
    while True: g()
except BaseException:
    while True: pass
"""
INTERRUPTED_S = 1
"""The time limit of what can be interrupted."""
ODD_TEXT = "class E(Exception):\n def __str__(self):\n  {}\nraise E"

CASES: dict[str, tuple[str, float | None, str]] = {
    "endless loop": ("while True: pass", INTERRUPTED_S, "EvalInterrupted"),
    "endless loop that catches the first interruption": (
        TAKEN_BACK,
        INTERRUPTED_S,
        "EvalInterrupted",
    ),
    "sleep(10**9)": ("import time; time.sleep(10**9)", 3, "eval_timed_out"),
    "a lock that nobody frees": (
        "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
        3,
        "eval_timed_out",
    ),
    "deep recursion": ("def f(n): return f(n + 1)\nf(0)", None, "RecursionError"),
    "30,000 terms": ("+".join(["1"] * 30_000), None, "RecursionError|MemoryError|30000"),
    "200,000 terms": ("+".join(["1"] * 200_000), None, "request_too_large"),
    "100,000 parentheses": ("(" * 100_000 + ")" * 100_000, None, "request_too_large"),
    "128 MiB of output": (
        "text = 'x' * ((1 << 20) - 1)\nfor _ in range(128): print(text)",
        None,
        "1048576 kept, 133169152 omitted",
    ),
    "a value of 300 MB": ("'x' * 300_000_000", None, "'x{40}.* kept, 2989\\d{5} omitted"),
    "a repr of 300 MB": (
        "class A:\n def __repr__(self): return 'x' * 300_000_000\nA()",
        None,
        "x{40}.* kept, 2989\\d{5} omitted",
    ),
    "a repr that raises": (
        "class A:\n def __repr__(self): raise SystemExit\nA()",
        None,
        "<unprintable A: repr raised SystemExit>",
    ),
    "a repr that never ends": (
        "class A:\n def __repr__(self):\n  while True: pass\nA()",
        INTERRUPTED_S,
        "EvalInterrupted",
    ),
    "an error of 300 MB": ("raise ValueError('x' * 300_000_000)", None, "ValueError"),
    "an error whose text never ends": (ODD_TEXT.format("while True: pass"), INTERRUPTED_S, "E"),
    "an error whose text prints": (ODD_TEXT.format("print('caught'); return ''"), None, "E"),
    "SystemExit": ("raise SystemExit(3)", None, "SystemExit"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", None, "KeyboardInterrupt"),
    "CancelledError": ("import asyncio; raise asyncio.CancelledError", None, "CancelledError"),
    "unpicklable": ("lambda: 1", None, "<function <lambda> at .*>"),
    "a generator": ("(i for i in range(3))", None, "<generator object .*>"),
    "a tensor": ("import torch; torch.ones(3)", None, "Tensor float32 .*all finite .*"),
    "a coroutine": ("async def c(): return 1\nc()", None, "<coroutine object c at .*>"),
    "no standard output any more": ("import sys; del sys.stdout", None, ""),
    "3 s of the interpreter lock, in C": (
        "import ctypes; ctypes.PyDLL(None).sleep(3)",
        3,
        "0|eval_timed_out|not_answering|EvalInterrupted",
    ),
}
"""What is sent, its time limit, and the error that it ends with or else the value."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training that prints."""
    cwd = tmp_path_factory.mktemp("harmed")
    target = start_training(home=cwd / "home", cwd=cwd)
    yield target
    target.reap()


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[Target], probing.Process]:
    """Connects to a process of the tests."""

    def connect_to(target: Target) -> probing.Process:
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        return probing.connect(target.pid)

    return connect_to


def told(result: EvalResult) -> str:
    """What came of code, in a few characters."""
    if result.error_type is not None:
        return result.error_type
    text = (result.value or "").strip().replace("\n", " ")
    if not result.omitted_bytes:
        return text[:80]
    return f"{text[:50] or len(result.output)} kept, {result.omitted_bytes} omitted"


def in_hand(job: probing.Process) -> list[str]:
    """What runs or waits for its turn."""
    return sorted(f"{one.state}, {one.place}" for one in job.jobs().jobs)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.fault("E1")
def test_whatever_code_does_it_has_an_answer(
    target: Target, connect: Callable[[Target], probing.Process], fault: Reached
) -> None:
    """Each case ends typed and bounded, those that block are named, and the training goes on."""
    job, largest = connect(target), 0
    for name, (code, limit_s, expected) in CASES.items():
        try:
            with patience(job) if limit_s == INTERRUPTED_S else nullcontext():
                result = answer_of_run(partial(job.eval, code, timeout_s=limit_s or 60))
            got = told(result)
            for text in (result.output, result.value, result.error):
                largest = max(largest, len(text or ""))
            if "prints" in name:
                assert result.output == "caught\n"
        except ProbingError as error:
            got = error.code
        kept = re.fullmatch(expected, got) is not None
        fault.holds(name, expected, got, is_kept=kept)
    fault.at_most("the longest text in an answer", 1.01, largest / (1 << 20), "MiB")
    connected = job.eval("'still here'", timeout_s=60).value
    fault.equals("the next eval", "'still here'", connected)
    wanted = ["left behind, <module> (<eval>:1)"] * 2
    end = time.monotonic() + DEADLINE_S
    while (left := in_hand(job)) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    fault.equals("in hand at the end", wanted, left)
    lines = len(target.output.splitlines())
    target.wait_for_step(target.step() + 11)  # it prints every tenth
    fault.holds(
        "the training's own prints",
        "more of them, and nothing else",
        f"{len(target.output.splitlines()) - lines} more",
        is_kept=len(target.output.splitlines()) > lines
        and not re.search("caught|Traceback|xxx", target.output),
    )


ENDS = {
    "os._exit(7)": ("import os; os._exit(7)", 7),
    "a segmentation fault": ("import ctypes; ctypes.string_at(0)", -11),
}


def moment_of(thread_id: int) -> float:
    """The time, in seconds, less that for which a thread of ours has waited for a processor."""
    waited_s = process.threads(os.getpid(), {thread_id})[thread_id].ready_s
    return time.monotonic() - (waited_s or 0.0)


@pytest.mark.anypython
@pytest.mark.fault("E2")
@pytest.mark.parametrize("way", ENDS)
def test_code_that_ends_the_process_is_on_record(
    way: str,
    program: Callable[..., Target],
    connect: Callable[[Target], probing.Process],
    fault: Reached,
) -> None:
    """It dies as told, who asked is told at once, and what was asked is read in its folder."""
    code, expected = ENDS[way]
    target = program("idle", PROBING="all")
    target.wait_for_output("ready")
    target.wait_for_agent()
    job, ended, own = connect(target), [], threading.get_native_id()

    def watch() -> None:
        target.process.wait()
        ended.append(moment_of(own))

    thread = threading.Thread(target=watch)
    thread.start()
    with pytest.raises(ProbingError) as caught:
        job.eval(code)
    at = moment_of(own)
    thread.join()
    fault.equals(f"{way}: its exit code", expected, target.process.returncode)
    fault.equals(f"{way}: the client's error", "process_ended", caught.value.code)
    fault.at_most(f"{way}: from its end to that", 1.0, at - ended[0], "s")
    sql = "SELECT code, state, uid IS NOT NULL AND pid IS NOT NULL AS who FROM python.evals"
    row = {"code": code, "state": None, "who": True}
    fault.equals(f"{way}: on record", [row], job.query(sql).to_pylist())


def test_no_thread_takes_no_place(tmp_path: Path) -> None:
    """Where the process may have no thread more, evals and actions say so, each time anew."""
    target = start_training(home=tmp_path / "home", cwd=tmp_path, PROBING_EVAL_MAX_RUNNING="2")
    try:
        too_much = "import threading; threading.stack_size(1 << 46)"  # as where memory is short
        assert target.run(str(target.pid), "eval", too_much).returncode == 0
        told = [target.run(str(target.pid), "eval", "1").stderr for _ in range(4)]
        told.append(target.run(str(target.pid), "act", "lr", "0.1").stderr)
        assert all("could not start a thread for it" in words for words in told), told
        target.wait_for_step(target.step() + 2)
    finally:
        target.reap()
