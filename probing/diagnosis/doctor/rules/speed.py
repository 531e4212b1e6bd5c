"""Rules about where the time goes, and since when.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. What only
waits is told apart from what computes, and a step that takes longer because its batch is larger
from one that takes longer without that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ....tables import STEP_PHASES
from ....units import duration
from ...leaks.series import Point, Trend, classify
from ..facts import WINDOW, Facts, Row, Steps, percent
from ..findings import Rule, Sign
from ..hot_lines import HotLine
from ..not_looked_at import NotLookedAt
from ..series import last_change
from .pace.device_causes import NO_CAUSE, device_cause
from .pace.grown_modules import Grown, grown_module, where_most
from .pace.of_machine import (
    OWN,
    crowd_words,
    is_as_crowded,
    is_lasting,
    left_alone,
    own_words,
    words_of_all_alike,
)
from .pace.unfrozen_parts import unfrozen_part

_LEAST_SLOWER = 1.3
_SURELY_SLOWER = 1.5
_COMPUTED = frozenset({"forward", "backward", "loss", "gradients", "optimizer"})
OWN_PHASES = ("other", "loss", "gradients", "to_device")
"""What the script's own code does between the model and the optimizer."""
_WAITS = frozenset({"data_wait", "gradient_sync"})
_LEAST_GROWTH = 0.3
_OWN_GROWTH = 1.0
"""The same of processor time, which others that share caches and processors change, too."""
_BLOCKS = 100
_SAME_WORK = 0.6
"""A change is told by the batch where that explains this part of it."""
_LARGER = 1.1
_OF_GRAPH = 0.5
"""A backward pass that grows by less than this part of what a forward pass does keeps no graph."""
MOST = 0.5
_ELEMENTS = (
    "SELECT median(number) FILTER (step <= {before}) AS old,"
    " median(number) FILTER (step >= {since}) AS new"
    " FROM (SELECT step, sum(elements) AS number FROM python.micro_batches"
    " WHERE step BETWEEN {first} AND {last} GROUP BY step)"
)
_OF_ARMS = "asked for `arm"
_EQUAL_BATCHES = "Make the batches equally large again: sort samples by length, or bound it."
_OWN_PROCESSORS = "Give the training processors of its own, or end what else runs there."
_CHANGES = (
    "SELECT name, arguments FROM probing.changes WHERE start_ns BETWEEN {begin} AND {end}"
    " AND name <> 'attach'"
)


def _slower_since(facts: Facts) -> Iterator[Sign]:
    """Steps take longer since one of them.

    On a machine that others use, steps get longer and shorter by that: what the thread computes
    since a step of its own is then told by its processor time.
    """
    steps = facts.undisturbed
    change = last_change(steps.column("duration"), least_ratio=_LEAST_SLOWER)
    found = None if change is None else _since(facts, steps, change.place, by="duration")
    if found is None or found.certainty == "possible":
        own = _own_change(steps)
        found = (None if own is None else _since(facts, steps, own, by="cpu_s")) or found
    if found is not None:
        yield found


def _own_change(steps: Steps) -> int | None:
    """The place since which the training thread computes far more in a step, if there is one."""
    used = steps.column("cpu_s")
    if not len(used) or np.isnan(used).any():
        return None
    change = last_change(used, least_ratio=OWN)
    if change is None:
        return None
    before = float(np.median(steps.column("duration")[: change.place]))
    return change.place if change.after - change.before >= (_LEAST_SLOWER - 1) * before else None


def _since(facts: Facts, steps: Steps, place: int, *, by: str) -> Sign | None:
    """That steps take longer since one; None where they do not, or it is others who do that."""
    since = steps.numbers[place]
    before, after = Steps(steps.rows[max(0, place - WINDOW) : place]), Steps(steps.rows[place:])
    ratio = after.median_s / before.median_s
    if ratio < _LEAST_SLOWER:
        return None
    phase, share = most_grown(before, after)
    explained, words = _by_batch(facts, before, after)
    computes = phase in _COMPUTED or by == "cpu_s"
    own = own_words(before, after) if computes else ()
    robbed = "" if own else crowd_words(before, after)
    crowd = robbed or ("" if own else facts.crowd)
    if crowd and computes and not (robbed and ratio >= _SURELY_SLOWER):
        return None  # it computes no more than it did: others on the machine make that longer
    has_device = not (explained or crowd or (phase in _WAITS and share >= MOST))
    cause = device_cause(facts, before, after) if has_device else NO_CAUSE
    is_plain = computes and not (explained or crowd or cause.words)
    module = grown_module(facts, before, after.last()) if is_plain else None
    where = where_most(phase, module) if (share >= MOST or module) and not cause.words else ""
    alike = "" if module or not is_plain else words_of_all_alike(before, after)
    why = words if explained else crowd or cause.words or alike
    begun, meant = ("", "") if why or phase == "data_wait" else unfrozen_part(facts, since)
    changed = _what_changed(facts, steps.rows[place]["start_ns"])
    is_weak = explained or crowd or alike or begun or not (own or is_lasting(before, after))
    is_sure = ratio >= _SURELY_SLOWER and not is_weak and not _is_asked(changed)
    return Sign(
        certainty="likely" if is_sure else "possible",
        summary=f"Steps take {ratio:.1f} times as long since step {since}"
        f" ({duration(before.median_s)} before, {duration(after.median_s)} since)"
        f"{where}{f'; {why or begun}' if why or begun else ''}",
        since_step=since,
        evidence=(
            *_in_phase(facts, phase, f"{percent(share)} of the difference", module),
            *filter(None, (*((cause.evidence,) if cause.words else own), words, crowd, *changed)),
        ),
        weight=min(1.0, 1 - 1 / ratio),
        caused_by="checkpoints" * (phase in OWN_PHASES and any(map(is_saving, _lines(facts)))),
        fix=_EQUAL_BATCHES if explained else _OWN_PROCESSORS if crowd else meant or cause.fix,
        next=cause.next,
    )


def _in_phase(facts: Facts, phase: str, part: str, module: Grown | None) -> tuple[str, ...]:
    """In which phase a part of what steps have grown by is, and in what of it."""
    of_module = (module.sentence,) if module else ()
    return (f"{part} is in {phase}_s", *of_module, *_line_words(facts, phase))


def _is_asked(changed: tuple[str, ...]) -> bool:
    """Whether something was armed then: it may be the question that slows the steps."""
    return any(_OF_ARMS in line for line in changed)


def _slower_and_slower(facts: Facts) -> Iterator[Sign]:
    steps = facts.steps.settled()
    found, told = _trend(steps, is_crowded=bool(facts.crowd))
    if not found.grows or found.first_step is None or (found.r2 or 0) < MOST:
        return
    measure = "duration" if told is steps else "cpu_s"
    since = [row for row in told.rows if row["step"] >= found.first_step]
    quarter = max(2, len(since) // 4)
    early, late = Steps(since[:quarter]), Steps(since[-quarter:])
    growth = _median(late, measure) / _median(early, measure) - 1
    is_own = measure == "duration" or _is_own_growth(early, late)
    if growth < (_LEAST_GROWTH if is_own else _OWN_GROWTH):
        return
    phase, share = most_grown(early, late)
    explained, words = _by_batch(facts, early, late)
    module = grown_module(facts, early, late) if phase in _COMPUTED and not explained else None
    is_weak = explained or measure == "cpu_s" or not is_lasting(Steps(since))
    yield Sign(
        certainty="possible" if is_weak else "likely",
        summary=f"Steps take longer and longer: {duration(found.slope)} more with each since step"
        f" {found.first_step}, now {duration(_median(late, measure))}" + where_most(phase, module),
        since_step=found.first_step,
        evidence=(
            ("in processor time, as others use the machine: " if measure == "cpu_s" else "")
            + f"{duration(_median(early, measure))} in the first quarter,"
            f" {duration(_median(late, measure))} in the last",
            *_in_phase(facts, phase, f"{percent(share)} of the growth", module),
            *((words,) if words else ()),
        ),
        weight=min(1.0, growth / (1 + growth)),
        fix=_growth_fix(phase, early, late, explained=explained),
    )


def _trend(steps: Steps, *, is_crowded: bool) -> tuple[Trend, Steps]:
    """Whether steps get longer, and the steps that tell it: others than the given by their `cpu_s`.

    Others on the machine make steps longer by chance: what the thread computes in them is its own,
    and that of steps in which it is left alone first of all.
    """
    found = classify([Point(row["step"], row["duration"]) for row in steps.rows])
    if not is_crowded or (found.grows and (found.r2 or 0) >= MOST):
        return found, steps
    known = Steps([row for row in steps.rows if row["cpu_s"] is not None])
    quiet = left_alone(known)
    has_now = len(quiet) and quiet.numbers[-1] >= known.numbers[-len(known) // 4]
    told = quiet if len(quiet) >= WINDOW and has_now else known
    return classify(_medians(told.rows)), told


def _is_own_growth(early: Steps, late: Steps) -> bool:
    """Whether nothing but the program can make its processor time grow from some steps to others.

    Others do not who have no more of its processors than before, nor a processor that is slower, as
    that makes all longer alike.
    """
    return is_as_crowded(early, late) and not words_of_all_alike(early, late)


def _medians(rows: list[Row]) -> list[Point]:
    """The processor time of steps, in blocks that single long steps do not change."""
    size = max(1, len(rows) // _BLOCKS)
    blocks = [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]
    return [
        Point(block[0]["step"], float(np.median([row["cpu_s"] for row in block])))
        for block in blocks
    ]


def _median(steps: Steps, name: str) -> float:
    """The median of a column; NaN where none is known."""
    known = steps.column(name)
    return float(np.nanmedian(known)) if not np.isnan(known).all() else math.nan


def _growth_fix(phase: str, early: Steps, late: Steps, *, explained: bool) -> str:
    """What to do; a graph that is kept makes the backward pass longer, whatever else it does."""
    if explained:
        return "Nothing, if the batches are meant to grow."
    grown = {
        p: late.seconds(p) / len(late) - early.seconds(p) / len(early)
        for p in ("forward", "backward")
    }
    if phase in grown and grown["backward"] >= _OF_GRAPH * grown["forward"]:
        return (
            "Detach what is carried from step to step, such as a hidden state: h = h.detach()."
            " Else each backward pass goes through all steps before."
        )
    return "Do not go through all of the past in each step: keep a running sum, or the last N."


def most_grown(before: Steps, after: Steps) -> tuple[str, float]:
    """The phase in which most of the difference is, and its part of it."""
    phases = (*STEP_PHASES, "gradient_sync")
    grown = {p: after.seconds(p) / len(after) - before.seconds(p) / len(before) for p in phases}
    phase = max(grown, key=lambda name: grown[name])
    whole = after.total_s / len(after) - before.total_s / len(before)
    return phase, min(1.0, grown[phase] / whole) if whole > 0 else 0.0


def _by_batch(facts: Facts, before: Steps, after: Steps) -> tuple[bool, str]:
    """Whether the batches have grown as the steps have, and that in words."""
    for name in ("tokens", "samples", "micro_batches", "elements"):
        old, new = _sizes(facts, name, before, after)
        slower = after.median_s / before.median_s
        if old and new > _LARGER * old and new / old - 1 >= _SAME_WORK * (slower - 1):
            what = name.replace("_", "-")
            return True, f"a step has {new:.0f} {what} since, and had {old:.0f} before"
    return False, ""


def _sizes(facts: Facts, name: str, before: Steps, after: Steps) -> tuple[float, float]:
    """How large a batch was and is, by its middle; zero where that is not known."""
    if name != "elements":
        old, new = (_median(part, name) for part in (before, after))
        return (0.0, 0.0) if np.isnan(old) or np.isnan(new) else (old, new)
    bounds = {"first": before.numbers[0], "before": before.numbers[-1]}
    asked = _ELEMENTS.format(**bounds, since=after.numbers[0], last=after.numbers[-1])
    try:
        (row,) = facts.rows(asked)
    except NotLookedAt:
        return 0.0, 0.0
    return row["old"] or 0.0, row["new"] or 0.0


def _what_changed(facts: Facts, start_ns: int) -> tuple[str, ...]:
    """What somebody has asked for around then."""
    second = 1_000_000_000
    try:
        rows = facts.rows(_CHANGES.format(begin=start_ns - 10 * second, end=start_ns + second))
    except NotLookedAt:
        return ()
    return tuple(f"somebody has asked for `{row['name']} {row['arguments']}` then" for row in rows)


def hot_lines_of(facts: Facts) -> list[HotLine]:
    """Lines of the program by their share of samples; none where it cannot be sampled."""
    try:
        return facts.hot_lines()
    except NotLookedAt:
        return []


def is_saving(line: HotLine) -> bool:
    """Whether it writes a checkpoint, or waits until one is on the disk."""
    return "save" in line.inner or "sync" in line.inner or "fsync(" in line.source


def in_words(lines: list[HotLine]) -> tuple[str, ...]:
    """Lines in words."""
    return tuple(
        f"{percent(line.share)} of the samples were at {line.place} in {line.func}"
        + (f", in {line.inner}" if line.inner != line.func else "")
        for line in lines
    )


def _line_words(facts: Facts, phase: str) -> tuple[str, ...]:
    """Where the script is most of the time, for a phase that it spends in its own code."""
    if phase not in OWN_PHASES:
        return ()
    return in_words(_lines(facts))


def _lines(facts: Facts) -> list[HotLine]:
    """The lines of the script's own code that it is in most."""
    return [line for line in hot_lines_of(facts) if line.is_outside][:2]


STEPS_QUERY = (
    'probing ENDPOINT query "SELECT step, duration, data_wait_s, forward_s, backward_s,'
    ' optimizer_s, other_s FROM python.steps ORDER BY step DESC LIMIT 20"'
)


RULES = (
    Rule(
        name="slower-since",
        group="slow",
        subject="speed",
        symptom="The same training makes fewer steps an hour than it did.",
        evidence=(
            "A change point in `duration` of python.steps: levels that differ by 1.3, told by"
            " ranks (4.5 standard deviations). Only possible below 1.5, where the batches have"
            " grown as much, where other programs use the machine, or where parts began to be"
            " trained then (`version` of python.parameters). What others make longer is told from"
            f" {_SURELY_SLOWER} on, where the thread is preempted; its own processor time is"
            " believed by steps in which it is not preempted more than before, since threads that"
            " spin use up more. Of a device that is half busy or more, `processes` and `sm_mhz` of"
            " python.devices tell whether others began to use it or its clock fell."
        ),
        certainty="likely",
        gravity=42,
        fix="Look at what began then: another process, a longer batch, a thread, an action.",
        next=STEPS_QUERY,
        look=_slower_since,
    ),
    Rule(
        name="slower-and-slower",
        group="slow",
        subject="speed",
        symptom="An epoch takes longer than the one before, and the next one longer again.",
        evidence="`duration` of python.steps grows over all of a span that ends now (Mann and"
        " Kendall), by 30 % or more; only possible where the batches grow as much. Where others use"
        " the machine, only possible, and by medians of `cpu_s`: of those steps in which the thread"
        " is hardly preempted, where there are enough. By 30 %, too, if others have no more of its"
        " processors than before, and not all that it computes grows alike; else if it doubles.",
        certainty="likely",
        gravity=46,
        fix="Find what grows: a list that is gone through in each step, a graph that is kept.",
        next=STEPS_QUERY,
        look=_slower_and_slower,
    ),
)
