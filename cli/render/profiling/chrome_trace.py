"""The trace of a profile for chrome://tracing, Perfetto and the tools that read torch's traces.

Rules of this file: a pure function of the trace. Our marks become the annotations by which such
tools find steps; module calls are put on a track of their own.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ....script.profile_mark import MARK_PATTERN

if TYPE_CHECKING:
    from ....profiling import Trace

_TRACK = 1_000_000_000
"""Added to a thread's number to get that of its track of modules: no thread has such a number."""


def render_chrome_trace(trace: Trace) -> str:
    """The trace as JSON."""
    raw = trace.raw["traceEvents"]
    events = [e for e in raw if not MARK_PATTERN.fullmatch(str(e.get("name"))) and _is_of_work(e)]
    pid = next((e["pid"] for e in raw if isinstance(e.get("pid"), int)), 0)
    starts = [_outside(mark.start_ns, mark.thread_id, events) for mark in trace.marks]
    for mark, (start_ns, end_ns) in zip(trace.marks, pairwise(starts), strict=False):
        span = {"start_ns": start_ns, "duration_ns": end_ns - start_ns}
        name = f"ProfilerStep#{mark.step}"
        events.append(_span(name, "user_annotation", pid, mark.thread_id, **span))
    for thread in sorted({module.thread_id for module in trace.modules}):
        args = {"name": f"modules of thread {thread}"}
        events.append(
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread + _TRACK, "args": args}
        )
    for module in trace.modules:
        span = {"start_ns": module.start_ns, "duration_ns": module.duration_ns}
        events.append(_span(module.name, "module", pid, module.thread_id + _TRACK, **span))
    return json.dumps({**trace.raw, "traceEvents": events}, separators=(",", ":"))


def _is_of_work(event: dict[str, Any]) -> bool:
    """Whether it is not the profiler's own span, whose process is a word: speedscope fails then."""
    return event.get("ph") not in {"X", "M"} or not isinstance(event.get("pid"), str)


def _outside(moment_ns: int, thread: int, events: list[dict[str, Any]]) -> int:
    """A moment, or the end of what the thread is in just then: a step ends in the optimizer's own.

    Viewers know spans of a thread only one after the other or one in the other.
    """
    ends = [moment_ns]
    for event in events:
        if event.get("ph") == "X" and event.get("tid") == thread:
            start_ns = event["ts"] * 1000
            end_ns = start_ns + event.get("dur", 0) * 1000
            if start_ns < moment_ns < end_ns:
                ends.append(math.ceil(end_ns) + 1)  # by no rounding before it
    return max(ends)


def _span(
    name: str, category: str, pid: int, thread: int, *, start_ns: int, duration_ns: int
) -> dict[str, Any]:
    """One complete event."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": thread,
        "ts": start_ns / 1000,
        "dur": duration_ns / 1000,
    }
