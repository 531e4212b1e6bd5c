"""Rules about what takes most of the time."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ....units import duration
from ..facts import WINDOW, Facts, Steps, percent
from ..findings import Rule, Sign
from ..hot_lines import loops_in
from .speed import MOST, STEPS_QUERY, hot_lines_of, in_words, is_saving

_LARGE = 0.25
_OFTEN_SAVED, _LEAST_SAVED = 5, 0.1
_HEAVY, _LOOPED = 0.6, 0.1
_SMALL_BYTES = 1 << 16
_MANY_CALLS = 30
_OVERHEAD_S = 0.01
_LEAST_OBJECTS = 0.2
_OF_OBJECTS = re.compile(
    r"all_gather_object|gather_object|scatter_object_list|broadcast_object_list"
    r"|(?:send|recv)_object_list"
)
_EVALUATED = (
    "SELECT count(*) AS number, sum(duration) AS total, 2 * count(*) FILTER (data_wait_s > 0)"
    " > count(*) AS loaded FROM python.evaluations"
    " WHERE duration IS NOT NULL AND start_ns BETWEEN {begin} AND {end}"
)
_IN_TRAINING = (
    "WITH e AS (FROM python.evaluations WHERE duration IS NOT NULL ORDER BY seq DESC LIMIT 1)"
    " SELECT bool_or(training) AS training FROM python.torch_trace t, e WHERE depth = 0"
    " AND stage = 'forward' AND t.start_ns BETWEEN e.start_ns AND e.start_ns + e.duration_ns"
)
_COLLECTS = "{}: a policy that collects samples looks the same"
_SAVED = (
    "SELECT start_ns, duration, caller FROM python.checkpoints WHERE duration IS NOT NULL"
    " AND start_ns BETWEEN {begin} AND {end} ORDER BY start_ns"
)
_CALLED = (
    "SELECT caller, op, count(*) AS calls, sum(wait_ns) / 1e9 AS total,"
    " median(bytes) AS bytes FROM python.collectives WHERE duration IS NOT NULL"
    " AND step BETWEEN {first} AND {last}"
    " AND op NOT IN ('send', 'recv', 'barrier') AND wait_ns IS NOT NULL"
    " GROUP BY ALL ORDER BY total DESC"
)
MODULES = (
    "SELECT model, module, class, root, max(depth) AS depth, count(*) AS calls,"
    " count(DISTINCT step) AS steps, sum(duration) AS total FROM python.torch_trace t"
    " WHERE stage = 'forward' AND duration IS NOT NULL AND step BETWEEN {first} AND {last}"
    " AND NOT EXISTS (FROM python.evaluations e WHERE t.start_ns BETWEEN e.start_ns"
    " AND e.start_ns + coalesce(e.duration_ns, 9e18::BIGINT)) GROUP BY ALL"
)


def _evaluations(facts: Facts) -> Iterator[Sign]:
    steps = facts.steps.last(10 * WINDOW)
    if len(steps) < 2:
        return
    begin, end = (steps.rows[n]["start_ns"] for n in (0, -1))
    rows = facts.rows(_EVALUATED.format(begin=begin, end=end))
    number, total = rows[0]["number"], rows[0]["total"] or 0.0
    share = total / (total + steps.total_s)
    every = len(steps) / number if number else 0
    if number < 3 or share < MOST:
        return
    why = "" if rows[0]["loaded"] else "no loader gives it batches"
    if facts.rows(_IN_TRAINING)[0]["training"]:
        why = "its model is in training mode"
    is_often = 2 < every <= 20
    is_sure = is_often and not why
    yield Sign(
        certainty="likely" if is_sure else "possible",
        summary=f"Evaluations take {percent(share)} of the time: one after every {every:.0f} steps,"
        f" {duration(total / number)} each",
        evidence=(
            f"{number} evaluations took {duration(total)}, {len(steps)} steps"
            f" {duration(steps.total_s)}",
            *((_COLLECTS.format(why),) if is_often and why else ()),
        ),
        weight=share,
    )


class _Saved(NamedTuple):
    """The checkpoints that were written in some steps."""

    number: int
    every: float
    total_s: float
    share: float
    caller: str


def _checkpoints(facts: Facts) -> Iterator[Sign]:
    """Checkpoints that are written after a few steps each take much of the time."""
    spans = [_saved_in(facts, facts.steps.last(count)) for count in (10 * WINDOW, WINDOW)]
    found = max(filter(None, spans), key=lambda saved: saved.share, default=None)
    if found is None:
        return
    saves = [line for line in hot_lines_of(facts) if is_saving(line)]
    by_lines = sum(line.share for line in saves)
    apart = sum(line.share for line in saves if line.place != found.caller)  # as an fsync after it
    share = min(1.0, found.share + apart)
    is_large = share >= _LARGE or by_lines >= _LARGE
    if found.every > (20 if is_large else _OFTEN_SAVED) or not (is_large or share >= _LEAST_SAVED):
        return
    yield Sign(
        certainty="likely" if is_large else "possible",
        summary=f"A checkpoint is written after every {found.every:.0f} steps, at {found.caller}:"
        f" {percent(share)} of the time",
        evidence=(
            f"{found.number} checkpoints took {duration(found.total_s)}",
            *in_words(saves),
        ),
        weight=max(share, by_lines),
    )


def _saved_in(facts: Facts, steps: Steps) -> _Saved | None:
    """What was saved in some steps, if that is on record of three times or more."""
    if len(steps) < 2:
        return None
    begin, end = (steps.rows[n]["start_ns"] for n in (0, -1))
    rows = facts.rows(_SAVED.format(begin=begin, end=end))
    if len(rows) < 3:
        return None
    total = sum(row["duration"] for row in rows)
    between = sum(row["duration"] for row in rows if not _is_in_step(row["start_ns"], steps))
    return _Saved(
        number=len(rows),
        every=len(steps) / len(rows),
        total_s=total,
        share=min(1.0, total / (steps.total_s + between)),
        caller=rows[-1]["caller"],
    )


def _is_in_step(at_ns: int, steps: Steps) -> bool:
    """Whether a moment is in one of the steps, and not between two of them."""
    place = bisect.bisect_right(steps.rows, at_ns, key=lambda row: row["start_ns"]) - 1
    row = steps.rows[max(0, place)]
    return bool(0 <= at_ns - row["start_ns"] < 1e9 * row["duration"])


def _garbage(facts: Facts) -> Iterator[Sign]:
    """Python's garbage collector takes much of each step."""
    now = facts.now()  # collecting is computing: what is longer, others took from the process
    collected = np.fmin(now.column("gc_s", missing=0.0), now.column("process_cpu_s"))
    share = float(collected.sum()) / now.total_s
    if share < 0.1:
        return
    often = float(np.mean(collected > 0))
    called = [line for line in hot_lines_of(facts) if line.inner == line.func]
    yield Sign(
        certainty="certain",
        summary=f"Python's garbage collector takes {percent(share)} of the time,"
        f" in {percent(often)} of the steps",
        since_step=None,
        evidence=(
            f"{duration(float(collected.sum()) / len(now))} a step over {len(now)} steps",
            *in_words(called[:1]),
        ),
        weight=share,
    )


def _collectives(facts: Facts) -> Iterator[Sign]:
    """Collectives take much of each step."""
    now = facts.now()
    rows = facts.rows(_CALLED.format(first=now.numbers[0], last=now.numbers[-1]))
    total = sum(row["total"] for row in rows)
    share = min(1.0, total / now.total_s)
    calls = sum(row["calls"] for row in rows) / len(now)
    if not rows or share < _LARGE:
        return
    many = calls >= _MANY_CALLS and (rows[0]["bytes"] or 0) < _SMALL_BYTES
    top = rows[0]
    yield Sign(
        certainty="likely" if many else "possible",
        summary=f"Collectives take {percent(share)} of each step: {calls:.0f} calls, most of the"
        f" time {top['op']} at {top['caller']}",
        evidence=(
            f"{duration(total / len(now))} a step;"
            f" {top['calls'] / len(now):.0f} {top['op']} of {top['bytes'] or 0:.0f} bytes there",
        ),
        weight=share,
        fix="Put small tensors into one: DistributedDataParallel does so in buckets."
        if many
        else "",
    )


def _object_collectives(facts: Facts) -> Iterator[Sign]:
    """Ranks exchange pickled objects in each step."""
    now = facts.now()
    rows = facts.rows(_CALLED.format(first=now.numbers[0], last=now.numbers[-1]))
    often = {row["caller"] for row in rows if row["calls"] >= len(now) / 2}
    lines = [
        (line, name)
        for line in (facts.hot_lines() if often else [])
        if line.place in often and (name := next(filter(_OF_OBJECTS.fullmatch, line.below), ""))
    ]
    share = sum(line.share for line, _ in lines)
    if share < _LEAST_OBJECTS:
        return
    line, name = lines[0]
    yield Sign(
        certainty="likely",
        summary="Objects are pickled, sent to other ranks and unpickled in each step, by"
        f" {name} at {line.place} in {line.func}: {percent(share)} of the time",
        evidence=in_words([one for one, _ in lines][:2]),
        weight=share,
    )


def _one_module(facts: Facts) -> Iterator[Sign]:
    """One module takes most of the forward pass."""
    now = facts.now()
    shares = now.shares()
    if shares["forward"] + shares["backward"] < _LARGE:
        return
    rows = facts.rows(MODULES.format(first=now.numbers[0], last=now.numbers[-1]))
    whole = sum(row["total"] for row in rows if row["depth"] == 0)
    found = _heaviest(rows, whole)
    if found is None or not whole:
        return
    share = found["total"] / whole
    lines = [line for line in facts.hot_lines() if loops_in(line, found["class"])][:2]
    if sum(line.share for line in lines) < _LOOPED:
        return  # it computes: what one large operation takes is no fault
    yield Sign(
        certainty="possible",
        summary=f"One module, {found['module']} ({found['class']}), loops in Python at"
        f" {lines[0].place}: it takes {percent(share)} of the forward passes, which are"
        f" {percent(shares['forward'])} of the time",
        evidence=(
            f"{duration(found['total'] / len(now))} of a step, {found['calls'] / len(now):.1f}"
            " calls",
            *in_words(lines),
        ),
        weight=share * shares["forward"],
    )


def _heaviest(rows: list[dict[str, Any]], whole: float) -> dict[str, Any] | None:
    """The module whose own code takes most of the time, where it is one of several."""
    inner = [row for row in rows if row["depth"] > 0]
    heavy = [row for row in inner if row["total"] > _HEAVY * whole]
    if len(inner) < 3 or not heavy:
        return None
    found = max(heavy, key=lambda row: (row["depth"], row["total"]))
    below = [
        row["total"]
        for row in inner
        if row["model"] == found["model"]
        and row["module"].startswith(f"{found['module']}.")
        and row["depth"] == found["depth"] + 1
    ]
    return found if sum(below) < found["total"] / 2 else None


def _small_batches(facts: Facts) -> Iterator[Sign]:
    """Steps are so small that Python's overhead is most of them."""
    now = facts.now(least=50)
    samples = now.column("samples")
    if np.isnan(samples).all() or float(np.nanmedian(samples)) > 1:
        return
    if now.median_s > _OVERHEAD_S or not np.isnan(now.column("tokens")).all():
        return
    yield Sign(
        certainty="possible",
        summary=f"Each step has one sample and takes {duration(now.median_s)}: most of that is the"
        " overhead of Python and of launching operations",
        evidence=(f"`samples` is 1 in {len(now)} steps",),
        weight=0.5,
    )


RULES = (
    Rule(
        name="evaluations",
        group="slow",
        subject="evaluations",
        symptom="Steps are fast, and the training gets on slowly all the same.",
        evidence="python.evaluations beside python.steps: half of the time; likely where one comes"
        " after every 3 to 20 steps in evaluation mode with batches of a loader (else it may be"
        " part of the method, as in reinforcement learning).",
        certainty="likely",
        gravity=40,
        fix="Evaluate less often, or on a part of the data.",
        next='probing ENDPOINT query "SELECT step, duration, calls, samples FROM python.evaluations'
        ' ORDER BY step DESC LIMIT 10"',
        look=_evaluations,
    ),
    Rule(
        name="checkpoints",
        group="slow",
        subject="checkpoints",
        symptom="The training pauses again and again while a file is written.",
        evidence=f"python.checkpoints: one after every 20 steps or fewer, in the last {WINDOW} or"
        f" {10 * WINDOW} steps, and a quarter of the time, by their own duration and samples of"
        " lines that save or wait for the disk; possible from a tenth on, where one comes after"
        f" every {_OFTEN_SAVED} steps.",
        certainty="likely",
        gravity=40,
        fix="Write checkpoints less often, or with torch.distributed.checkpoint.async_save.",
        source="https://pytorch.org/docs/stable/distributed.checkpoint.html",
        next='probing ENDPOINT query "SELECT step, path, duration, bytes FROM python.checkpoints'
        ' ORDER BY step DESC LIMIT 10"',
        look=_checkpoints,
        cost_s=2.0,
    ),
    Rule(
        name="garbage-collector",
        group="slow",
        subject="speed",
        symptom="Steps take longer the more Python objects there are.",
        evidence="`gc_s` of python.steps, no more of each than `process_cpu_s`: a tenth of the last"
        " 100 steps.",
        certainty="certain",
        gravity=41,
        fix="Do not call gc.collect() in the loop; gc.freeze() once after the set-up, and collect"
        " every few hundred steps.",
        source="https://docs.python.org/3/library/gc.html",
        next='probing ENDPOINT query "SELECT step, duration, gc_s FROM python.steps'
        ' ORDER BY step DESC LIMIT 20"',
        look=_garbage,
        cost_s=2.0,
    ),
    Rule(
        name="collectives",
        group="slow",
        subject="ranks",
        symptom="More ranks do not make the training faster.",
        evidence="`wait_ns` of python.collectives: a quarter of each step; likely where there are"
        f" {_MANY_CALLS} or more calls in a step, most below 64 KiB.",
        certainty="likely",
        gravity=39,
        fix="Communicate less often or less: larger buckets, or only what is used.",
        source="https://pytorch.org/docs/stable/notes/ddp.html",
        next="probing ENDPOINT stragglers",
        look=_collectives,
    ),
    Rule(
        name="object-collectives",
        group="slow",
        subject="ranks",
        symptom="Ranks spend their time on pickling, and Python's garbage collector on the rest.",
        evidence="Samples of a line whose collective of objects (all_gather_object and its like) is"
        f" on record in half of the steps: {percent(_LEAST_OBJECTS)} of the time.",
        certainty="likely",
        gravity=44,
        fix="Send tensors: all_gather_into_tensor of what is needed, already reduced; and not in"
        " each step.",
        source="https://pytorch.org/docs/stable/distributed.html",
        next="probing ENDPOINT stragglers",
        look=_object_collectives,
        cost_s=2.0,
    ),
    Rule(
        name="one-module",
        group="slow",
        subject="speed",
        symptom="One part of the model holds up all others.",
        evidence="python.torch_trace: the own code of one of several modules takes three fifths"
        f" of all forward passes; and {percent(_LOOPED)} of the samples are in a loop of the"
        " program within it.",
        certainty="possible",
        gravity=32,
        fix="Let one operation on a whole tensor do what the loop does.",
        next="probing ENDPOINT profile --steps 1",
        look=_one_module,
        cost_s=2.0,
    ),
    Rule(
        name="small-batches",
        group="slow",
        subject="speed",
        symptom="Steps are fast, samples per second are few.",
        evidence="`samples` of python.steps is 1 and a step takes less than 10 ms.",
        certainty="possible",
        gravity=31,
        fix="Raise the batch size: a larger batch costs hardly more here.",
        source="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        next=STEPS_QUERY,
        look=_small_batches,
    ),
)
