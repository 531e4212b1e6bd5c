"""Rules about what the training thread waits for amid its steps: others' answers, or the GIL.

Rules of this file: each is named by one `Rule` at the end, and looks from outside of the process,
which is not paused.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator

from .....linux.processors import processor_times
from .....profiling.samples import Samples
from ....hang.seen.others import senders_to
from ...facts import Facts, percent
from ...findings import Rule, Sign
from ...hot_lines import HotLine, in_thread
from ...not_looked_at import NotLookedAt
from ..speed import MOST, OWN_PHASES

_WAITING = 0.25
"""A quarter of all steps is worth a look, whoever is waited for."""
_OF_OWN_CODE = 0.2
"""The script's own code takes at least this: what waits elsewhere, as for data, has other rules."""
_SHOWN = 0.01
_NETWORK = re.compile(
    r"(?:^|\.)(?:readinto|recv(?:_into|from)?|send(?:all)?|connect|create_connection"
    r"|getaddrinfo|do_handshake)$"
)
_CHILD = re.compile(r"(?:^|\.)(?:_communicate|communicate|_try_wait|_wait|check_output)$")
_QUEUE = re.compile(r"(?:^|\.)Queue\.get$")
_GETS, _CONDITION = frozenset({"get", "wait"}), re.compile(r"(?:^|\.)(?:Condition|Event)\.wait$")
"""Before Python 3.11 functions have no class in their names."""
_RECEIVES = (frozenset({"_recv_bytes", "_recv"}), frozenset({"poll", "_poll", "wait"}))
"""Functions of `multiprocessing.connection`, any of these sets of which waits for a process."""
QUEUED, BESIDE = "a queue that others fill", "another thread"
FILLED, SENT = "a queue that other processes fill", "what another process sends"
SENDERS = "who sends to the training"
"""By which name it is asked for."""
_READS_S = 0.5
"""For so long it is looked again and again from whom the training thread reads."""
MORE_ITEMS = (
    "Nothing, where each step needs what has just been made, as on-policy learning does; else have"
    " more made for it: more actors, workers or processes (threads share one interpreter lock), or"
    " more steps from what each of them gives."
)
_LOADER = re.compile(r"(?:^|\.)(?:_next_data|_try_get_data)$")
_LOOK_S, _HZ = 1.0, 50
_BUSY_ELSEWHERE = 0.3
"""Processors that other threads of the process use: less holds nobody up for long."""
_OFTEN, _MOSTLY = 0.4, 0.6
_HELD_UP = 0.75
"""The training thread has a processor for less than this part of its steps."""


def _waiting_call(facts: Facts) -> Iterator[Sign]:
    """A call of the script waits for somebody else in each step; own-code has what is longer."""
    now = facts.now()
    shares = now.shares()
    if not _OF_OWN_CODE <= sum(shares[phase] for phase in OWN_PHASES) < MOST:
        return
    line, whom = next(
        ((line, whom) for line in facts.hot_lines() if (whom := waits_for(line))), (None, "")
    )
    if line is None:
        return
    yield Sign(
        certainty="possible",
        summary=f"The training waits for {whom} in its steps, at {line.place} in {line.func}:"
        f" {percent(line.share)} of the samples",
        evidence=(
            f"the innermost function there is {line.inner}",
            *(f"{p}_s: {percent(shares[p])}" for p in OWN_PHASES if shares[p] >= _SHOWN),
            *what_senders_do(facts, whom),
        ),
        weight=line.share,
        fix=MORE_ITEMS if whom in {QUEUED, FILLED, SENT} else "",
    )


def waits_for(line: HotLine) -> str:
    """For whom a line of the script waits; empty where it does not."""
    calls = (*line.below, line.inner)
    if line.share < _WAITING or not line.is_outside or any(map(_LOADER.search, calls)):
        return ""
    names = {name.rpartition(".")[2] for name in calls}
    if any(map(names.issuperset, _RECEIVES)):
        return FILLED if "get" in names else SENT
    if any(map(_NETWORK.search, calls)):
        return "the network"
    if any(map(_CHILD.search, calls)):
        return "another process"
    if any(map(_QUEUE.search, calls)) or _GETS.issubset(calls):
        return QUEUED
    return BESIDE if any(map(_CONDITION.search, calls)) else ""


def what_senders_do(facts: Facts, whom: str) -> tuple[str, ...]:
    """What the processes do that are waited for, where it is processes, and they can be seen."""
    if whom not in {FILLED, SENT}:
        return ()
    try:
        return facts.ask(SENDERS, lambda: _senders(facts))
    except NotLookedAt:
        return ()


def _senders(facts: Facts) -> tuple[str, ...]:
    """A clause on each, with how much of a processor it has used since the first look."""
    pid, first = facts.pid_here(), facts.first
    found = senders_to(pid, facts.training_thread or pid, within_s=_READS_S)
    now, passed_s = processor_times(), time.monotonic() - first.moment_s
    words = []
    for sender in found:
        before, after = (times.get(sender.pid or 0) for times in (first.processor_times, now))
        known = before is not None and after is not None and passed_s > 0
        used = ((after or 0.0) - (before or 0.0)) / passed_s if known else 0.0
        words.append(f"{sender.words}; it uses {used:.1f} processors" if known else sender.words)
    return tuple(words)


def _competing_thread(facts: Facts) -> Iterator[Sign]:
    """Another thread of the process holds the interpreter lock most of the time."""
    now = facts.now()
    beside = float((now.column("process_cpu_s") - now.column("cpu_s")).sum()) / now.total_s
    if not beside >= _BUSY_ELSEWHERE:  # or not known
        return
    facts.pid_here()
    if facts.folder is None:
        raise NotLookedAt("no agent is in it")
    samples = facts.ask("who holds the interpreter lock", lambda: _holders(facts))
    trains = {frames[0] for frames, _ in in_thread(samples.stacks, facts.training_thread)}
    by_frame, by_thread = Counter[tuple[str, str]](), Counter[str]()
    for frames, number in samples.stacks:
        by_frame[frames[0], frames[-1]] += number
        by_thread[frames[0]] += number
    name = next((name for name, _ in by_thread.most_common() if name not in trains), None)
    if name is None:
        return
    share = by_thread[name] / (_LOOK_S * _HZ)
    computes = float(now.column("cpu_s").sum()) / now.total_s
    if share < _OFTEN or computes >= _HELD_UP:
        return
    place = next(frame for (thread, frame), _ in by_frame.most_common() if thread == name)
    is_sure = share >= _MOSTLY and not facts.crowd
    yield Sign(
        certainty="likely" if is_sure else "possible",
        summary=f"Thread {name.rpartition(': ')[2]} holds the interpreter lock (GIL) for"
        f" {percent(share)} of the time, at {_short(place)}: the training waits for it between its"
        " operations",
        evidence=(
            f"{by_thread[name]} of {_LOOK_S * _HZ:.0f} samples in {_LOOK_S:.0f} s",
            f"the training thread has a processor for {percent(computes)} of its steps, and other"
            f" threads use {beside:.1f} processors meanwhile",
        ),
        weight=share,
    )


def _holders(facts: Facts) -> Samples:
    """Samples of the thread that holds the interpreter lock, whichever that is."""
    return facts.process.sample(_LOOK_S, hz=_HZ, gil=True)


def _short(frame: str) -> str:
    """A frame with the last part of its file's name."""
    return re.sub(r"\((?:.*/)?([^/]+)\)$", r"(\1)", frame)


RULES = (
    Rule(
        name="competing-thread",
        group="slow",
        subject="speed",
        symptom="Each operation takes milliseconds; the process uses more than one processor.",
        evidence=(
            "Other threads of the process use 0.3 processors or more in its steps, and one holds"
            f" the interpreter lock in {percent(_OFTEN)} of one second's samples; likely from"
            f" {percent(_MOSTLY)} on. The training thread computes for less than"
            f" {percent(_HELD_UP)} of its steps."
        ),
        certainty="likely",
        gravity=45,
        fix="Have that thread wait (queue.get, threading.Event) instead of asking again and again,"
        " or move its work to another process.",
        source="https://docs.python.org/3/library/sys.html#sys.setswitchinterval",
        next="probing ENDPOINT profile --sampling 10",
        look=_competing_thread,
        cost_s=1.0,
    ),
    Rule(
        name="waiting-call",
        group="slow",
        subject="speed",
        symptom="Steps take longer than what they compute, and the processor is idle meanwhile.",
        evidence=(
            f"{percent(_WAITING)} of two seconds' samples are in one line of the script that"
            " waits for the network, another process, an item of a queue or a thread, and"
            f" {percent(_OF_OWN_CODE)} of a step is code of the script; from {percent(MOST)} on"
            " `own-code` tells it. Of a queue or a connection of multiprocessing the processes at"
            " its other end are named, with what they do. It may be meant, as where an environment"
            " is remote."
        ),
        certainty="possible",
        gravity=37,
        fix="Do it in a thread of its own, or once in many steps.",
        next="probing ENDPOINT profile --sampling 10",
        look=_waiting_call,
        cost_s=2.0,
    ),
)
