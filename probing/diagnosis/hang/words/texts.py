"""Small texts of verdicts: names of ranks, sets of them, lengths of time.

Rules of this file: pure functions of their arguments.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....cluster.job.rank_sets import rank_set
from ....units import age
from ..evidence import Call, RankEvidence

_WIDEST = 60
UNASKED = "low: the other ranks were not asked"
UNRECORDED = "low: nothing is on record while recording is off"
SPINS = " (a collective that waits there keeps it busy, too)"


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2,5`; of more sets than fit on a line the first ones and the number."""
    found = sorted(set(ranks))
    text = rank_set(found)
    if len(text) > _WIDEST:
        text = f"{text[:_WIDEST].rpartition(',')[0]},... ({len(found):,} in all)"
    return f"rank{'s' if len(found) != 1 else ''} {text}"


def name_of(evidence: RankEvidence) -> str:
    """What people call a process."""
    return f"rank {evidence.rank}" if evidence.rank is not None else f"process {evidence.pid}"


def seconds(value: float | None) -> str:
    """A length of time that people read at a glance."""
    return "an unknown time" if value is None else age(value)


def call_text(call: Call, *, full: bool = False) -> str:
    """A collective: ``all_reduce number 41 of group 0``, with what it was called with if `full`."""
    if not call.is_collective:
        way = "to" if call.op == "send" else "from"
        other = f" {way} rank {call.peer}" if call.peer is not None else ""
        return f"{call.op}{other} in group {call.group}"
    text = f"{call.op} number {call.seq} of group {call.group}"
    if full:
        facts = [call.shapes, call.dtypes, call.reduce_op]
        facts.append(f"root {call.root}" if call.root is not None else None)
        shown = " ".join(fact for fact in facts if fact)
        text += f" ({shown})" if shown else ""
    return text


def at(call: Call) -> str:
    """Where a collective was called: `` at train.py:88``."""
    return f" at {call.caller}" if call.caller else ""


def sentence(text: str) -> str:
    """A text that begins with a capital and ends with a full stop."""
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."


def unrecorded_words(who: str, *, several: bool = False) -> str:
    """Why it cannot be said of some whether they hang."""
    gets, whose = ("get", "their") if several else ("gets", "its")
    return (
        f"Nothing tells whether {who} {gets} on: {whose} recording is off (`config recording=1`"
        " turns it on)."
    )
