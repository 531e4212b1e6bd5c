"""A thread that waits for its device, told by the call that it stands in."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probing.agent.sources.stacks.look import take_backtrace
from probing.cluster.job.membership import Member
from probing.diagnosis.hang import Doing, Work, judge
from probing.diagnosis.hang.seen.collection import Stacks, evidence_of
from probing.diagnosis.hang.seen.device_waits import with_device
from probing.diagnosis.hang.seen.doings import doing_of
from probing.messages.common import Backtrace, Frame, ThreadStack
from probing.stacks.source_lines import SourceLines, Span
from tests.harness.targets import wait_until
from tests.unit.doctor.made import MadeProcess, facts, signs, steps
from tests.unit.ranks.hang_samples import evidence

pytestmark = pytest.mark.anypython

PRINTS = 'print(f"step {step} loss {loss.item():.4f}", flush=True)'
BUSY_ROW = {"device": "cuda:0", "busy": 1.0, "processes": 1}
BUSY = BUSY_ROW | {"age_s": 0.4}
SURE = "waits for the device, which works or hangs (100 % busy), in "


def standing(line: str, call: str | None, **changes: Any) -> ThreadStack:
    """A thread that stands in a call of a line, which spins as CUDA does."""
    frame = Frame(func="main", file="/job/seismic.py", lineno=83, line=line, call=call)
    facts = {"frames": (frame,), "waiting": "running", **changes}
    return ThreadStack(thread_id=7, name="MainThread", is_main=True, **facts)


def told(seen: ThreadStack, again: ThreadStack | None = None, **device: Any) -> Doing:
    """What is said of a thread that is seen twice, at the same place if nothing else is said."""
    doing = doing_of(Backtrace(pid=1, source="agent", threads=(seen,)))
    assert doing is not None
    return with_device(doing, seen, again or seen, BUSY | device)


@pytest.mark.parametrize(
    ("line", "call"),
    [
        (PRINTS, "loss.item()"),
        ("losses = losses.cpu().numpy()", "losses.cpu()"),
        ("rows = torch.cat(parts).tolist()", "torch.cat(parts).tolist()"),
        ('y = y.to("cpu")', 'y.to("cpu")'),
        ("x = x.to(device)", "x.to(device)"),
        ("total += float(loss)", "float(loss)"),
        ("if bool(flag): break", "bool(flag)"),
        ("x.cuda()", "x.cuda()"),
    ],
)
def test_a_call_that_waits_for_the_device(line: str, call: str) -> None:
    """It stands in the same call at both looks while the device works."""
    doing = told(standing(line, call))
    assert (doing.kind, doing.words) == ("device", f"{SURE}`{call}`")
    assert doing.where == "seismic.py:83 in main"


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("x = x.to(device, non_blocking=True)", "x.to(device, non_blocking=True)"),
        (PRINTS, PRINTS),
        ("loss = step(x); log(loss.item())", "step(x)"),
        ("while n < most: n += 1", "n < most"),
        ("int(a, 16)", "int(a, 16)"),
        ("f(", "f("),
    ],
)
def test_another_call_of_such_a_line(line: str, call: str) -> None:
    """Which call of the line it is in decides, and not what else the line calls."""
    assert told(standing(line, call)).words == "runs Python code"


def test_what_is_not_known_makes_it_likely_only() -> None:
    """Without the call, the second look or the device's figures, it most likely waits."""
    line = told(standing(PRINTS, None)).words
    assert line == f"most likely {SURE}`{PRINTS}`"
    seen = standing(PRINTS, "loss.item()")
    doing = doing_of(Backtrace(pid=1, source="agent", threads=(seen,)))
    assert doing is not None
    assert with_device(doing, seen, None, BUSY).words == f"most likely {SURE}`loss.item()`"
    for device in ({"busy": None}, {"age_s": 60.0}):
        words = told(seen, **device).words
        assert words == "most likely waits for the device, in `loss.item()`"


def test_a_thread_that_goes_on_waits_for_nothing() -> None:
    """It is at another line, or in another call of the same one; or the device has no work."""
    seen = standing("total += a.item() + b.item()", "a.item()")
    assert told(seen, standing("total += a.item() + b.item()", "b.item()")).words.startswith("runs")
    moved = standing(PRINTS, "loss.item()", frames=(Frame(func="f", file="/job/a.py", lineno=9),))
    assert told(seen, moved).words.startswith("runs")
    assert told(seen, busy=0.0).words.startswith("runs")
    assert told(standing("float(x)", "float(x)"), busy=0.5).words.startswith("runs")


def test_the_device_is_waited_for_asleep_too() -> None:
    """Where CUDA does not spin; and other processes may be those that keep it busy."""
    seen = standing(PRINTS, "loss.item()", waiting="waiting for input or output (poll)")
    assert told(seen, processes=5).words == (
        "waits for the device, which works or hangs (100 % busy, 4 other processes on it), in"
        " `loss.item()`"
    )
    shown = Frame(func="_str", file="/x/site-packages/torch/_tensor_str.py", lineno=1, call="f(x)")
    assert told(standing(PRINTS, None, frames=(shown,))).words == f"{SURE}the print of a tensor"


def test_the_verdict_names_the_device_and_what_to_do() -> None:
    """That it stands still is measured; whether the device works or hangs, nothing tells."""
    doing = told(standing(PRINTS, "loss.item()"))
    one = evidence(0, (), doing=doing, world_size=None, groups=(), work=Work(cpu=1.0))
    verdict = judge([replace(one, rank=None)])
    assert verdict.is_hang
    assert verdict.headline == (
        f"process 4100 has not moved for 15 s, in step 40: it {SURE}`loss.item()`, at"
        " seismic.py:83 in main."
    )
    assert verdict.confidence.startswith("medium: ")
    assert "CUDA_LAUNCH_BLOCKING=1" in verdict.next_steps[-1]
    found = signs("hang", facts({"steps": steps(41)}, verdict=verdict))
    assert [(sign.certainty, sign.summary) for sign in found] == [("likely", verdict.headline)]
    waits = replace(verdict, is_hang=False, outcome="fine", still_s=None)
    assert signs("waits", facts(verdict=waits)) == []


def test_the_looks_at_a_rank_and_its_device_are_put_together() -> None:
    """Where its record has a device, what is told of the thread is told with that."""
    thread = standing(PRINTS, "loss.item()")
    trace = Backtrace(pid=1, source="agent", threads=(thread,))
    stacks = Stacks(state="answering", trace=trace)
    answers: Any = MadeProcess({"devices": [BUSY_ROW | {"start_ns": time.time_ns()}]}, {})
    member = Member(rank=None, host="here", pid=1, world_size=None, endpoint="1")
    found = evidence_of(answers, member, None, stacks, again=trace)
    assert found.doing is not None
    assert found.doing.words == f"{SURE}`loss.item()`"
    assert found.device is not None
    assert found.device.startswith("device cuda:0: 100 % busy")
    bare: Any = MadeProcess({}, {})
    plain = evidence_of(bare, member, None, stacks, again=trace)
    assert plain.doing is not None
    assert plain.doing.words == "runs Python code"


def test_the_call_of_a_line_that_a_thread_is_in() -> None:
    """Of all that a line calls the agent tells which; before Python 3.11 nobody knows."""
    begun, end = threading.Event(), threading.Lock()
    end.acquire()

    def stand() -> str:
        begun.set()
        return f"{len(str(1))} {end.acquire(True)} {len(str(2))}"

    thread = threading.Thread(target=stand, name="stands", daemon=True)
    thread.start()

    def call() -> tuple[str | None] | None:
        found = next(one for one in take_backtrace().threads if one.name == "stands")
        is_there = begun.is_set() and found.frames[0].func.endswith("stand")
        frame = found.frames[0]
        is_at = "acquire" in (frame.line or "") and found.state == "S"
        return (frame.call,) if is_there and is_at else None

    try:
        told = wait_until(call, "the thread stands in its lock")
    finally:
        end.release()
        thread.join()
    assert told == ("end.acquire(True)" if sys.version_info >= (3, 11) else None,)


def test_a_part_of_a_file(tmp_path: Path) -> None:
    """An expression of several lines, or behind letters of several bytes, is one line of text."""
    file = tmp_path / "x.py"
    file.write_text('größe = "ä" + str(\n    1\n)\n')
    lines = SourceLines()
    begin = len('größe = "ä" + '.encode())
    assert lines.part(str(file), Span(1, 3, begin, 1)) == "str( 1 )"
    assert lines.part(str(file), Span(1, 9, 0, 1)) is None
    assert lines.part(str(tmp_path / "none.py"), Span(1, 1, 0, 1)) is None
