"""A CPU profile of any Python process, taken from outside by py-spy.

Rules of this file: the process is not changed and not paused, so it may hang, be stopped, or never
have heard of us. Its own agent's threads are left out.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Container, Mapping
from typing import Any

from ..errors import InternalError, NotPython, ProcessEnded
from ..linux import process
from ..linux.thread_numbers import kernel_numbers
from ..stacks import py_spy
from . import Samples, is_agents_thread, parse_folded

Tell = Callable[[float], None]
_IDLE_S = 1.0
_UNNUMBERED = re.compile(r"thread \((0x[0-9A-Fa-f]+)\)[^;\"\n]*")
"""py-spy's name of a thread whose number in the kernel it does not know."""


def sample(pid: int, how: py_spy.Record, notes: list[str], tell: Tell | None = None) -> Samples:
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
    if not (samples.stacks or samples.timeline or how.idle or how.gil):
        shorter = how._replace(seconds=min(how.seconds, _IDLE_S), idle=True)
        notes.append(
            f"no thread used the processor in these {samples.seconds:g} s: what is shown is where"
            f" threads wait, sampled for {shorter.seconds:g} s more"
        )
        samples = _record(pid, shorter, notes, None)
    return samples


def _record(pid: int, how: py_spy.Record, notes: list[str], tell: Tell | None) -> Samples:
    """One recording."""
    used_before = process.processor_ns(pid)
    text, failed, seconds = py_spy.record(pid, how, tell)
    if failed:
        notes.append(
            f"{failed:,} stacks could not be read, because the process ran on meanwhile, and are"
            " missing"
        )
    takes_all = how.idle or how.gil
    waited = frozenset() if takes_all else _threads_that_waited(pid, how, text, used_before, notes)
    facts = parse_folded("" if how.timeline else text, seconds=seconds, hz=how.hz, left_out=waited)
    timeline = _without(waited, text) if how.timeline else None
    return dataclasses.replace(facts, idle=how.idle, timeline=timeline)


def _threads_that_waited(
    pid: int, how: py_spy.Record, text: str, used_before: Mapping[int, int], notes: list[str]
) -> frozenset[str]:
    """py-spy's names of the threads that it could not tell to be waiting, but that only waited.

    It asks the kernel whether a thread waits, by the kernel's number of it, which Python keeps
    since 3.11; threads of older ones bear Python's own number in their names.
    """
    names = {match[0]: int(match[1], 16) for match in _UNNUMBERED.finditer(text)}
    if not names:
        return frozenset()
    numbers = kernel_numbers(pid, names.values())
    used = process.processor_ns(pid)
    waited = frozenset(
        name
        for name, ident in names.items()
        if (number := numbers.get(ident)) in used
        and used[number] - used_before.get(number, 0) < 1e9 / how.hz
    )
    if len(waited) < len(names):
        notes.append(
            "this Python is older than 3.11: a thread that used the processor at all is shown"
            " also while it waited"
        )
    return waited


def _without(threads: Container[str], text: str) -> str | None:
    """A Chrome trace without those and the agent's threads; None where nothing else is in it."""
    try:
        events = json.loads(text or "[]")
        left_out = {
            event["tid"]
            for event in events
            if event["ph"] == "B"
            and (is_agents_thread(str(event["name"])) or event["name"] in threads)
        }
        kept = [event for event in events if event["tid"] not in left_out]
    except (ValueError, KeyError, TypeError) as error:
        raise InternalError(f"py-spy's answer cannot be read ({error!r})") from None
    return json.dumps(_paired(kept)) if kept else None


def _paired(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with each end called as what it ends.

    py-spy has functions end by their names, with the line that they have come to, and outer ones
    before the inner ones that end at the same time; viewers take such an end for another call's.
    """
    open_calls: dict[Any, list[dict[str, Any]]] = {}

    def named(event: dict[str, Any]) -> dict[str, Any]:
        calls = open_calls.setdefault(event.get("tid"), [])
        if event["ph"] == "B":
            calls.append(event)
        if event["ph"] != "E" or not calls:
            return event
        begun = calls.pop()
        return {**event, **{key: begun[key] for key in ("name", "cat", "args") if key in begun}}

    return [named(event) for event in events]
