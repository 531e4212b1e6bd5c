"""Rules about where the time goes, and since when.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. What only
waits is told apart from what computes, and a step that takes longer because its batch is larger
from one that takes longer without that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...tables import STEP_PHASES
from ...units import duration
from ..leaks.series import Point, classify
from .facts import WINDOW, Facts, HotLine, Steps, percent
from .findings import NotLookedAt, Rule, Sign
from .series import Floats, last_change

_PHASE_WORDS = {
    "data_wait": "the wait for data",
    "to_device": "the way of the batch to the model",
    "forward": "the forward pass",
    "loss": "the loss",
    "backward": "the backward pass",
    "gradient_sync": "the wait for other ranks",
    "gradients": "what is done with the gradients",
    "optimizer": "the optimizer",
    "other": "other code of the script",
}
_LEAST_SLOWER = 1.3
_SURELY_SLOWER = 1.5
_LEAST_GROWTH = 0.3
_SAME_WORK = 0.6
"""A change is told by the batch where that explains this part of it."""
_LARGE = 0.25
_MOST = 0.5
_HEAVY = 0.6
_SLEEPS = re.compile(r"\bsleep$")
_SMALL_BYTES = 1 << 16
_MANY_CALLS = 30
_OVERHEAD_S = 0.01
_BUSY = 0.75

_CHANGES = (
    "SELECT name, arguments FROM probing.changes WHERE start_ns BETWEEN {begin} AND {end}"
    " AND name <> 'attach'"
)
_EVALUATED = (
    "SELECT count(*) AS number, sum(duration) AS total FROM python.evaluations"
    " WHERE duration IS NOT NULL AND start_ns >= {begin}"
)
_SAVED = (
    "SELECT count(*) AS number, sum(duration) AS total, any_value(caller) AS caller"
    " FROM python.checkpoints WHERE duration IS NOT NULL AND start_ns >= {begin}"
)
_CALLED = (
    "SELECT caller, op, count(*) AS calls, sum(wait_ns) / 1e9 AS total,"
    " median(bytes) AS bytes FROM python.collectives WHERE duration IS NOT NULL"
    " AND step >= {first} AND op NOT IN ('send', 'recv', 'barrier') AND wait_ns IS NOT NULL"
    " GROUP BY ALL ORDER BY total DESC"
)
_MODULES = (
    "SELECT module, class, root, max(depth) AS depth, count(*) AS calls, sum(duration) AS total"
    " FROM python.torch_trace WHERE stage = 'forward' AND duration IS NOT NULL"
    " AND step >= {first} GROUP BY ALL"
)


def _slower_since(facts: Facts) -> Iterator[Sign]:
    """Steps take longer since one of them."""
    steps = facts.steps.settled()
    change = last_change(steps.column("duration"), least_ratio=_LEAST_SLOWER)
    if change is None or change.after <= change.before:
        return
    place, since = change.place, steps.numbers[change.place]
    before, after = Steps(steps.rows[max(0, place - WINDOW) : place]), Steps(steps.rows[place:])
    phase, share = _most_grown(before, after)
    explained, words = _by_batch(before, after)
    crowd = _crowd_words(before, after) or facts.crowd
    yield Sign(
        certainty="possible" if explained or crowd or change.ratio < _SURELY_SLOWER else "likely",
        summary=f"Steps take {change.ratio:.1f} times as long since step {since}"
        f" ({duration(change.before)} before, {duration(change.after)} since), most of it in"
        f" {_PHASE_WORDS[phase]}" + (f"; {words}" if explained else f"; {crowd}" if crowd else ""),
        since_step=since,
        evidence=(
            f"{percent(share)} of the difference is in {phase}_s",
            *((words,) if words else ()),
            *((crowd,) if crowd else ()),
            *_what_changed(facts, steps.rows[place]["start_ns"]),
        ),
        weight=min(1.0, 1 - 1 / change.ratio),
        fix="Make the batches equally large again: sort samples by length, or bound it."
        if explained
        else "Give the training processors of its own, or end what else runs there."
        if crowd
        else "",
    )


def _slower_and_slower(facts: Facts) -> Iterator[Sign]:
    """Each step takes longer than the one before."""
    steps = facts.steps.settled()
    found = classify([Point(r["step"], r["duration"]) for r in steps.rows])
    if not found.grows or found.first_step is None:
        return
    since = [row for row in steps.rows if row["step"] >= found.first_step]
    quarter = max(2, len(since) // 4)
    early, late = Steps(since[:quarter]), Steps(since[-quarter:])
    growth = late.median_s / early.median_s - 1
    if growth < _LEAST_GROWTH or (found.r2 or 0) < _MOST:
        return
    phase, share = _most_grown(early, late)
    explained, words = _by_batch(early, late)
    yield Sign(
        certainty="possible" if explained else "likely",
        summary=f"Steps take longer and longer: {duration(found.slope)} more with each since step"
        f" {found.first_step}, now {duration(late.median_s)}, most of it in {_PHASE_WORDS[phase]}",
        since_step=found.first_step,
        evidence=(
            f"{duration(early.median_s)} in the first quarter, {duration(late.median_s)} in the"
            " last",
            f"{percent(share)} of the growth is in {phase}_s",
            *((words,) if words else ()),
            *(_line_words(facts) if phase in {"other", "loss", "gradients", "to_device"} else ()),
        ),
        weight=min(1.0, growth / (1 + growth)),
        fix=_growth_fix(phase, explained=explained),
    )


def _growth_fix(phase: str, *, explained: bool) -> str:
    if explained:
        return "Nothing, if the batches are meant to grow."
    if phase in {"forward", "backward"}:
        return (
            "Detach what is carried from step to step, such as a hidden state: h = h.detach()."
            " Else each backward pass goes through all steps before."
        )
    return "Do not go through all of the past in each step: keep a running sum, or the last N."


def _most_grown(before: Steps, after: Steps) -> tuple[str, float]:
    """The phase in which most of the difference is, and its part of it."""
    phases = (*STEP_PHASES, "gradient_sync")
    grown = {p: after.seconds(p) / len(after) - before.seconds(p) / len(before) for p in phases}
    phase = max(grown, key=lambda name: grown[name])
    whole = after.total_s / len(after) - before.total_s / len(before)
    return phase, min(1.0, grown[phase] / whole) if whole > 0 else 0.0


def _by_batch(before: Steps, after: Steps) -> tuple[bool, str]:
    """Whether the batches have grown as the steps have, and that in words."""
    slower = after.median_s / before.median_s
    for name in ("tokens", "samples"):
        sizes = [part.column(name) for part in (before, after)]
        if any(np.isnan(size).all() for size in sizes):
            continue
        old, new = (float(np.nanmedian(size)) for size in sizes)
        if old and new / old - 1 >= _SAME_WORK * (slower - 1):
            return True, f"a step has {new:.0f} {name} since, and had {old:.0f} before"
    return False, ""


def _crowd_words(before: Steps, after: Steps) -> str:
    """That the training thread gets less of a processor than it did; empty where it does not."""
    old, new = _processor_share(before), _processor_share(after)
    switched = [float(np.nanmean(part.column("involuntary_switches"))) for part in (before, after)]
    if new < 0.9 * old and switched[1] > 2 * max(switched[0], 1.0):
        return (
            f"others use its cores: the training thread had a processor for {percent(old)} of the"
            f" time and has it for {percent(new)}, and is preempted {switched[1]:.0f} times a step"
        )
    return ""


def _processor_share(steps: Steps) -> float:
    """For what part of what it does not wait in Python the training thread has a processor."""
    waits = steps.seconds("data_wait") + steps.seconds("gradient_sync")
    whole = steps.total_s - waits
    return float(np.nansum(steps.column("cpu_s"))) / whole if whole > 0 else 1.0


def _what_changed(facts: Facts, start_ns: int) -> tuple[str, ...]:
    """What somebody has asked for around then."""
    second = 1_000_000_000
    try:
        rows = facts.rows(_CHANGES.format(begin=start_ns - 10 * second, end=start_ns + second))
    except NotLookedAt:
        return ()
    return tuple(f"somebody has asked for `{row['name']} {row['arguments']}` then" for row in rows)


def _crowded(facts: Facts) -> Iterator[Sign]:
    """The training gets less of its processors than it wants."""
    now = facts.now()
    share = _processor_share(now)
    per_s = float(np.nansum(now.column("involuntary_switches"))) / now.total_s
    if share >= _BUSY or per_s < 20:  # a scheduler's slice is 3 to 50 ms
        return
    yield Sign(
        certainty="possible",
        summary=f"Others use the training's processors: its thread has one for {percent(share)} of"
        " the time",
        evidence=(f"it is preempted {per_s:.0f} times a second",),
        weight=1 - share,
    )


def _evaluations(facts: Facts) -> Iterator[Sign]:
    """Evaluations take most of the time."""
    steps = facts.steps.last(10 * WINDOW)
    if len(steps) < 2:
        return
    begin = steps.rows[0]["start_ns"]
    rows = facts.rows(_EVALUATED.format(begin=begin))
    number, total = rows[0]["number"], rows[0]["total"] or 0.0
    share = total / (total + steps.total_s)
    every = len(steps) / number if number else 0
    if number < 3 or share < _MOST:
        return
    yield Sign(
        certainty="likely" if 2 < every <= 20 else "possible",
        summary=f"Evaluations take {percent(share)} of the time: one after every {every:.0f} steps,"
        f" {duration(total / number)} each",
        evidence=(
            f"{number} evaluations took {duration(total)}, {len(steps)} steps"
            f" {duration(steps.total_s)}",
        ),
        weight=share,
    )


def _checkpoints(facts: Facts) -> Iterator[Sign]:
    """Checkpoints take much of the time."""
    steps = facts.steps.last(10 * WINDOW)
    if len(steps) < 2:
        return
    rows = facts.rows(_SAVED.format(begin=steps.rows[0]["start_ns"]))
    number, total = rows[0]["number"], rows[0]["total"] or 0.0
    if number < 3:
        return
    every, share = len(steps) / number, total / (total + steps.total_s)
    saves = [line for line in _hot_lines(facts) if "save" in line.inner or "sync" in line.inner]
    if every > 20 or (share < _LARGE and sum(line.share for line in saves) < _LARGE):
        return
    yield Sign(
        certainty="likely",
        summary=f"A checkpoint is written after every {every:.0f} steps, at {rows[0]['caller']}:"
        f" {percent(share)} of the time",
        evidence=(f"{number} checkpoints took {duration(total)}", *_lines(saves)),
        weight=max(share, sum(line.share for line in saves)),
    )


def _garbage(facts: Facts) -> Iterator[Sign]:
    """Python's garbage collector takes much of each step."""
    now = facts.now()
    collected = now.column("gc_s", missing=0.0)
    share = float(collected.sum()) / now.total_s
    if share < 0.1:
        return
    often = float(np.mean(collected > 0))
    called = [line for line in _hot_lines(facts) if line.inner == line.func]
    yield Sign(
        certainty="certain",
        summary=f"Python's garbage collector takes {percent(share)} of the time,"
        f" in {percent(often)} of the steps",
        since_step=None,
        evidence=(
            f"{duration(float(collected.sum()) / len(now))} a step over {len(now)} steps",
            *_lines(called[:1]),
        ),
        weight=share,
    )


def _collectives(facts: Facts) -> Iterator[Sign]:
    """Collectives take much of each step."""
    now = facts.now()
    first = now.numbers[0]
    rows = facts.rows(_CALLED.format(first=first))
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


def _own_code(facts: Facts) -> Iterator[Sign]:
    """Code of the script between the phases takes most of each step."""
    now = facts.now()
    shares = now.shares()
    phases = ("other", "loss", "gradients", "to_device")
    share = sum(shares[phase] for phase in phases)
    gc_share = now.seconds("gc") / now.total_s
    if share - gc_share < _MOST:
        return
    waits = _processor_share(now) < 0.5
    lines = [line for line in _hot_lines(facts) if line.share >= 0.1][:3]
    sleeps = bool(lines) and bool(_SLEEPS.search(lines[0].inner))
    where = f", most at {lines[0].place} in {lines[0].func}" if lines else ""
    yield Sign(
        certainty="possible",
        summary=f"{percent(share)} of each step is code of the script outside of the model and the"
        f" optimizer{where}" + (": it sleeps" if sleeps else ": it mostly waits" if waits else ""),
        evidence=(*(f"{p}_s: {percent(shares[p])}" for p in phases if shares[p] >= 0.05),
                  *_lines(lines)),
        weight=share,
    )  # fmt: skip


def _one_module(facts: Facts) -> Iterator[Sign]:
    """One module takes most of the forward pass."""
    now = facts.now()
    shares = now.shares()
    if shares["forward"] + shares["backward"] < _LARGE:
        return
    rows = facts.rows(_MODULES.format(first=now.numbers[0]))
    whole = sum(row["total"] for row in rows if row["depth"] == 0)
    found = _heaviest(rows, whole)
    if found is None or not whole:
        return
    share = found["total"] / whole
    lines = [line for line in _hot_lines(facts) if line.share >= 0.2][:2]
    yield Sign(
        certainty="possible",
        summary=f"One module, {found['module']} ({found['class']}), takes {percent(share)} of the"
        f" forward passes, which are {percent(shares['forward'])} of the time",
        evidence=(
            f"{duration(found['total'] / len(now))} of a step, {found['calls'] / len(now):.1f}"
            " calls",
            *_lines(lines),
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
        if row["module"].startswith(f"{found['module']}.") and row["depth"] == found["depth"] + 1
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


def _hot_lines(facts: Facts) -> list[HotLine]:
    """Lines of the program by their share of samples; none where it cannot be sampled."""
    try:
        return facts.hot_lines()
    except NotLookedAt:
        return []


def _lines(lines: list[HotLine]) -> tuple[str, ...]:
    """Lines in words."""
    return tuple(
        f"{percent(line.share)} of the samples were at {line.place} in {line.func}"
        + (f", in {line.inner}" if line.inner != line.func else "")
        for line in lines
    )


def _line_words(facts: Facts) -> tuple[str, ...]:
    return _lines([line for line in _hot_lines(facts) if line.share >= 0.1][:2])


def finite(values: Floats) -> Floats:
    """Without what is not known."""
    return values[np.isfinite(values)]


_STEPS_QUERY = (
    'probing ENDPOINT query "SELECT step, duration, data_wait_s, forward_s, backward_s,'
    ' optimizer_s, other_s FROM python.steps ORDER BY step DESC LIMIT 20"'
)
RULES = (
    Rule(
        name="slower-since",
        group="slow",
        subject="speed",
        symptom="The same training makes fewer steps an hour than it did.",
        evidence="A change point in `duration` of python.steps: levels that differ by 1.3, told by"
        " ranks (4.5 standard deviations). Only possible below 1.5, where the batches have grown as"
        " much, or where other programs use the processors.",
        certainty="likely",
        gravity=42,
        fix="Look at what began then: another process, a longer batch, a thread, an action.",
        next=_STEPS_QUERY,
        look=_slower_since,
    ),
    Rule(
        name="slower-and-slower",
        group="slow",
        subject="speed",
        symptom="An epoch takes longer than the one before, and the next one longer again.",
        evidence="`duration` of python.steps grows over all of a span that ends now (Mann and"
        " Kendall), by 30 % or more; only possible where the batches grow as much.",
        certainty="likely",
        gravity=46,
        fix="Find what grows: a list that is gone through in each step, a graph that is kept.",
        next=_STEPS_QUERY,
        look=_slower_and_slower,
    ),
    Rule(
        name="crowded-processors",
        group="slow",
        subject="processors",
        symptom="All of a step takes longer than on an idle machine.",
        evidence="`cpu_s` and `involuntary_switches` of python.steps: the training thread has a"
        " processor for less than three quarters of what it does not wait, and is preempted.",
        certainty="possible",
        gravity=34,
        fix="Give the training processors of its own: taskset, cpuset, --cpus-per-task.",
        next=_STEPS_QUERY.replace("data_wait_s, forward_s, backward_s, optimizer_s, other_s",
                                  "cpu_s, process_cpu_s, involuntary_switches"),
        look=_crowded,
    ),
    Rule(
        name="evaluations",
        group="slow",
        subject="evaluations",
        symptom="Steps are fast, and the training gets on slowly all the same.",
        evidence="python.evaluations beside python.steps: half of the time; likely where one comes"
        " after every 3 to 20 steps (after each step it is part of the method, as in reinforcement"
        " learning).",
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
        evidence="python.checkpoints: one after every 20 steps or fewer, and a quarter of the time,"
        " by their own duration or by samples of the line that saves.",
        certainty="likely",
        gravity=40,
        fix="Write checkpoints less often, or with torch.distributed.checkpoint.async_save.",
        source="https://pytorch.org/docs/stable/distributed.checkpoint.html",
        next='probing ENDPOINT query "SELECT step, path, duration, bytes FROM python.checkpoints'
        ' ORDER BY step DESC LIMIT 10"',
        look=_checkpoints,
        is_slow=True,
    ),
    Rule(
        name="garbage-collector",
        group="slow",
        subject="speed",
        symptom="Steps take longer the more Python objects there are.",
        evidence="`gc_s` of python.steps: a tenth of the time of the last 100 steps.",
        certainty="certain",
        gravity=41,
        fix="Do not call gc.collect() in the loop; gc.freeze() once after the set-up, and collect"
        " every few hundred steps.",
        source="https://docs.python.org/3/library/gc.html",
        next='probing ENDPOINT query "SELECT step, duration, gc_s FROM python.steps'
        ' ORDER BY step DESC LIMIT 20"',
        look=_garbage,
        is_slow=True,
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
        name="own-code",
        group="slow",
        subject="speed",
        symptom="The model is small beside what surrounds it.",
        evidence="`other_s`, `loss_s`, `gradients_s` and `to_device_s` of python.steps: half of the"
        " time. It may be meant: an environment that is played, a deliberate pause.",
        certainty="possible",
        gravity=36,
        fix="Do what needs no result of the step less often, or in another process.",
        next="probing ENDPOINT profile --sampling 10",
        look=_own_code,
        is_slow=True,
    ),
    Rule(
        name="one-module",
        group="slow",
        subject="speed",
        symptom="One part of the model holds up all others.",
        evidence="python.torch_trace: the own code of one of several modules takes three fifths of"
        " all forward passes.",
        certainty="possible",
        gravity=30,
        fix="Look whether it loops in Python where one operation on a whole tensor would do.",
        next="probing ENDPOINT profile --steps 1",
        look=_one_module,
        is_slow=True,
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
        next=_STEPS_QUERY,
        look=_small_batches,
    ),
)  # fmt: skip
