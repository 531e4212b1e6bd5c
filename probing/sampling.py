"""A CPU profile of any Python process, taken from outside by py-spy.

Rules of this file: the process is not changed and not paused, so it may hang, be stopped, or never
have heard of us. Its own agent's threads are left out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass

from . import process, py_spy
from .errors import InternalError, NotPython, ProcessEnded
from .profiling import Samples, is_agents_thread, parse_folded

Tell = Callable[[float], None]
_IDLE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How to sample.

    Attributes:
        hz: Samples per second.
        idle: Also threads that wait.
        timeline: Keep the order of time, as a Chrome trace.
    """

    seconds: float = 10.0
    hz: int = 100
    idle: bool = False
    timeline: bool = False


def sample(pid: int, how: How, notes: list[str], tell: Tell | None = None) -> Samples:
    """Sample the stacks of all threads for a while.

    Where no thread uses the processor, those that wait are sampled for a moment instead.

    Args:
        notes: Gets what the reader should know.
        tell: Called now and then with the seconds that have passed.

    Raises:
        NotPython: It runs no Python.
        ProcessEnded: It is gone.
        ProbingError: It cannot be read.
    """
    if process.start_time(pid) is None:
        raise ProcessEnded(pid, "it can no longer be sampled")
    if not process.is_python(pid):
        raise NotPython(pid)
    samples = _record(pid, how, notes, tell)
    if not (samples.stacks or samples.timeline or how.idle):
        shorter = dataclasses.replace(how, seconds=min(how.seconds, _IDLE_S), idle=True)
        notes.append(
            f"no thread used the processor in these {how.seconds:g} s: what is shown is where"
            f" threads wait, sampled for {shorter.seconds:g} s more"
        )
        samples = _record(pid, shorter, notes, None)
    return samples


def _record(pid: int, how: How, notes: list[str], tell: Tell | None) -> Samples:
    """One recording."""
    form = "chrometrace" if how.timeline else "raw"
    wanted = py_spy.Record(seconds=how.seconds, hz=how.hz, idle=how.idle, form=form)
    text, failed = py_spy.record(pid, wanted, tell)
    if failed:
        notes.append(
            f"{failed:,} stacks could not be read, because the process ran on meanwhile, and are"
            " missing"
        )
    facts = parse_folded("" if how.timeline else text, seconds=how.seconds, hz=how.hz)
    timeline = _without_agent(text) if how.timeline else None
    return dataclasses.replace(facts, idle=how.idle, timeline=timeline)


def _without_agent(text: str) -> str | None:
    """A Chrome trace without the agent's threads; None where nothing else is in it."""
    try:
        events = json.loads(text or "[]")
        agents = {
            event["tid"]
            for event in events
            if event["ph"] == "B" and is_agents_thread(str(event["name"]))
        }
        kept = [event for event in events if event["tid"] not in agents]
    except (ValueError, KeyError, TypeError) as error:
        raise InternalError(f"py-spy's answer cannot be read ({error!r})") from None
    return json.dumps(kept) if kept else None
