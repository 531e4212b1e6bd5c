"""Whether steps of the second run take longer, in which phase and module, and what explains it.

Rules of this file: phases are compared by `interval`, modules by the medians of what their calls in
one step take together. What others have done to the processors meanwhile is told apart by how often
the training thread was preempted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Sequence
from typing import TypeAlias

import numpy as np

from ...units import duration
from ..phase_words import PHASE_WORDS
from .effects import Effect, Measure, cause_words, causes_of, explained
from .interval import LEAST_STEPS, Interval, compare
from .record import PHASES, Row, Run, column, together
from .setup import Difference

TOLD = 1.05
"""By what steps must be slower at least, wherever in its interval the truth lies, to be told;"""
_LIKELY = (1.5, 1.25, 1.1, 1.1)
"""and to be called likely, by how strong the link to what explains it is: one run is not the next,
and the machine is not on record."""
_LEAST_S = 1e-4
_FEW = 64
_CROWDED_SHARE = 0.9
_CROWDED_PER_S = 5.0
_SPREAD = 0.5
"""What part of the slowness the rest of a step must have for that."""
_PART = 0.6
"""What part of a phase's difference a module must have to be named,"""
_PHASE = 0.1
"""and a phase of the step's to be marked."""
_MODULES = """
SELECT module, stage, model, max(depth) AS depth, median(s) AS s, count(*) AS steps
FROM (
  SELECT module, root, stage, step, max(depth) AS depth, sum(s) AS s,
    CASE WHEN steps < {least} THEN regexp_replace(model, ' [0-9]+$', '') ELSE model END AS model
  FROM (
    SELECT module, root, model, stage, step, max(depth) AS depth, sum(duration) AS s,
      count(*) OVER (PARTITION BY module, root, model, stage) AS steps
    FROM python.torch_trace
    WHERE stage IN ('forward', 'backward') AND duration IS NOT NULL
      AND step BETWEEN {first} AND {last}
    GROUP BY module, root, model, stage, step)
  GROUP BY ALL)
GROUP BY module, root, model, stage HAVING count(*) >= {least}
"""
"""Those of each model apart; models that are made anew and so get a number (`loss 2`) are one."""
_Key: TypeAlias = tuple[str, str, str | None]
"""A module, its stage and its model."""


def phases(before: Run, after: Run) -> tuple[Measure, ...]:
    """A step and each of its phases that takes some of it; none where there are too few steps.

    A phase is different where the step is and it has a part of that: the phases are many, and one
    of them always differs.
    """
    first, second, _ = together(before, after)
    if min(len(first), len(second)) < LEAST_STEPS:
        return ()
    whole = compare(column(first, "duration"), column(second, "duration"))
    step = _measure("step", whole, is_different=is_told(whole))
    found = [step]
    for phase in PHASES:
        columns = [column(rows, f"{phase}_s") for rows in (first, second)]
        if any(values.any() for values in columns):
            part = compare(*columns)
            is_part = (part.after - part.before) / (
                whole.after - whole.before or math.inf
            ) >= _PHASE
            is_different = bool(step.is_different) and part.is_different and is_part
            found.append(_measure(phase, part, is_different=is_different))
    return tuple(found)


def is_told(step: Interval) -> bool:
    """Whether steps differ by enough, wherever in its interval the truth lies."""
    ratios = (step.low_ratio, 1 / step.high_ratio if step.high_ratio > 0 else 1.0)
    return max(ratios) >= TOLD and abs(step.after - step.before) >= _LEAST_S


def modules(before: Run, after: Run) -> tuple[Measure, ...]:
    """The modules that both runs have called, those first that differ most."""
    times = [_module_times(run, rows) for run, rows in _with_rows(before, after)]
    number = [Counter((module, stage) for module, stage, _ in of_run) for of_run in times]
    several = {module for found in number for module, count in found.items() if count > 1}
    first, second = (
        {_module_name(key, several): time for key, time in of_run.items()} for of_run in times
    )
    found = [
        Measure(name=name, unit="s", before=first[name][0], after=second[name][0], depth=depth)
        for name, (_, depth) in second.items()
        if name in first
    ]
    found.sort(key=lambda one: (-abs(one.after - one.before), one.name))
    return tuple(found)


def slower(
    before: Run,
    after: Run,
    measured: Sequence[Measure],
    of_modules: Sequence[Measure],
    differences: Sequence[Difference],
) -> Effect | None:
    """That a step takes longer, or less long; None where it does not beyond chance."""
    if not measured:
        return None
    step, is_worse = measured[0], measured[0].after > measured[0].before
    if not step.is_different:
        return None
    sure = _sure_ratio(step, is_worse=is_worse)
    phase, share = _most_changed(measured)
    module = _module(of_modules, phase, measured) if phase in {"forward", "backward"} else None
    able = [one for one in differences if not _is_contrary(one, is_worse=is_worse)]
    causes = causes_of(able, lambda reach: phase in reach.phases)
    crowd = ""
    if _is_all_over(measured, phase):
        crowd = _crowd_words(before, after) if is_worse else _crowd_words(after, before)
    work, is_work = _work_words(before, after, step)
    strength = causes[0].reach.strength if causes and not is_short(before, after) else 0
    is_doubtful = crowd or is_work or sure < _LIKELY[strength]
    said = _headline(before.name, step, _place(phase, share, module))
    return Effect(
        kind="speed",
        is_worse=is_worse,
        certainty="possible" if is_doubtful else "likely",
        summary=f"{said}; {crowd}" if crowd else explained(said, causes),
        evidence=(
            _interval_words(before, after, step),
            *_share_words(phase, share),
            *((work,) if work else ()),
            *((crowd,) if crowd else ()),
            *cause_words(causes),
        ),
        causes=causes,
        weight=1 - 1 / sure,
    )


def _is_contrary(difference: Difference, *, is_worse: bool) -> bool:
    """Whether it is a size that would change the time of a step the other way."""
    if difference.kind != "step" and not difference.name.endswith(".batch_size"):
        return False
    try:
        old, new = float(difference.before or ""), float(difference.after or "")
    except ValueError:
        return False
    return (new < old) if is_worse else (new > old)


def is_short(before: Run, after: Run) -> bool:
    """Whether there are so few steps that a slow minute may be all of them."""
    return min(len(rows) for _, rows in _with_rows(before, after)) < _FEW


def _headline(name: str, step: Measure, place: str) -> str:
    ratio = step.after / step.before
    times = f"{ratio:.2f}" if ratio < 1.995 else f"{ratio:.1f}"
    return (
        f"Steps take {times} times as long as in {name} ({duration(step.after)},"
        f" {duration(step.before)} there){place}"
    )


def _share_words(phase: str, share: float) -> tuple[str, ...]:
    return (f"{100 * share:.0f} % of the difference is in {phase}_s",) if share >= _PHASE else ()


def _place(phase: str, share: float, module: Measure | None) -> str:
    """Where the difference is: most of it or its largest part; nothing of a part that is little."""
    if share < _PHASE:
        return ""
    where = PHASE_WORDS[phase]
    if module is not None and module.ratio is not None:
        where += f", in module {module.name.rpartition(' ')[0]}"
        where += f" ({module.ratio:.1f} times)" if module.ratio >= 1.05 else ""
    how_much = "most" if share > 0.5 else "the largest part"
    return f", {how_much} of the difference in {where}"


def _interval_words(before: Run, after: Run, step: Measure) -> str:
    first, second, are_same = together(before, after)
    which = "the same steps" if are_same else "steps"
    return (
        f"{len(second)} against {len(first)} of {which}, without those of the start and with"
        f" checkpoints, evaluations or questions: {step.low_ratio:.2f} to {step.high_ratio:.2f}"
        " times (99 % interval)"
    )


def _measure(name: str, found: Interval, *, is_different: bool) -> Measure:
    has_ratio = not math.isnan(found.low_ratio)
    return Measure(
        name=name,
        unit="s",
        before=found.before,
        after=found.after,
        low_ratio=found.low_ratio if has_ratio else None,
        high_ratio=found.high_ratio if has_ratio else None,
        is_different=is_different,
    )


def _sure_ratio(step: Measure, *, is_worse: bool) -> float:
    """By what one is slower than the other at least."""
    if step.low_ratio is None or step.high_ratio is None:
        return 1.0
    return step.low_ratio if is_worse else 1 / step.high_ratio


def _most_changed(measured: Sequence[Measure]) -> tuple[str, float]:
    """The phase that most of the difference is in, and its part of it."""
    whole = measured[0].after - measured[0].before
    parts = {m.name: (m.after - m.before) / whole for m in measured[1:]}
    if not parts:
        return "other", 1.0
    phase = max(parts, key=lambda name: parts[name])
    return phase, max(0.0, min(1.0, parts[phase]))


def _with_rows(before: Run, after: Run) -> list[tuple[Run, tuple[Row, ...]]]:
    first, second, _ = together(before, after)
    return [(before, first), (after, second)]


def _module_times(run: Run, rows: Sequence[Row]) -> dict[_Key, tuple[float, int]]:
    """What each module takes of a step, and in how many others it is."""
    if not rows:
        return {}
    first, last = rows[0]["step"], rows[-1]["step"]
    found = run.query(_MODULES.format(first=first, last=last, least=LEAST_STEPS // 2))
    return {(row["module"], row["stage"], row["model"]): (row["s"], row["depth"]) for row in found}


def _module_name(key: _Key, several: Container[tuple[str, str]]) -> str:
    """A module, of which model it is where several of a run have one of that name, and the stage.

    Args:
        several: Those modules, with their stages.
    """
    module, stage, model = key
    of = f" of {model}" if model is not None and (module, stage) in several else ""
    return f"{module}{of} {stage}"


def _module(
    of_modules: Sequence[Measure], phase: str, measured: Sequence[Measure]
) -> Measure | None:
    """The innermost module that most of the difference of a phase is in."""
    of_phase = next(one for one in measured if one.name == phase)
    whole = of_phase.after - of_phase.before
    heavy = [
        one
        for one in of_modules
        if one.name.endswith(f" {phase}") and (one.after - one.before) / whole >= _PART
    ]
    return max(heavy, key=lambda one: one.depth, default=None)


def _is_all_over(measured: Sequence[Measure], phase: str) -> bool:
    """Whether the rest of a step differs, too, as it does for want of a processor."""
    step, part = measured[0], next((one for one in measured if one.name == phase), None)
    if part is None or step.before <= part.before:
        return True
    rest = (step.after - part.after) / (step.before - part.before)
    ratio = step.after / step.before
    return rest >= 1 + _SPREAD * (ratio - 1) if ratio > 1 else rest <= 1 - _SPREAD * (1 - ratio)


def _share(rows: Sequence[Row]) -> float | None:
    """For what part of what it does not wait in Python the training thread has a processor."""
    waits = column(rows, "data_wait_s") + column(rows, "gradient_sync_s")
    cpu_s = column(rows, "cpu_s", missing=math.nan)
    whole = float((column(rows, "duration") - waits).sum())
    return None if whole <= 0 or np.isnan(cpu_s).any() else float(cpu_s.sum()) / whole


def _crowd_words(before: Run, after: Run) -> str:
    """That others have used the processors of the second run more; empty where they have not."""
    (_, first), (_, second) = _with_rows(before, after)
    shares = [_share(rows) for rows in (first, second)]
    old, new = (
        float(column(rows, "involuntary_switches").sum() / column(rows, "duration").sum())
        for rows in (first, second)
    )
    if shares[0] is None or shares[1] is None:
        return ""
    if shares[1] > _CROWDED_SHARE * shares[0] or new < 2 * max(old, _CROWDED_PER_S):
        return ""
    return (
        f"others used the processors of {after.name}: its training thread had one for"
        f" {100 * shares[1]:.0f} % of the time, and was preempted {new:.0f} times a second"
        f" ({100 * shares[0]:.0f} % and {old:.0f} in {before.name})"
    )


def _work_words(before: Run, after: Run, step: Measure) -> tuple[str, bool]:
    """How long it takes per sample, and whether that is the same: then it has just more to do."""
    (_, first), (_, second) = _with_rows(before, after)
    for name in ("tokens", "samples"):
        sizes = [column(rows, name, missing=math.nan) for rows in (first, second)]
        if any(np.isnan(size).all() for size in sizes):
            continue
        old, new = (float(np.nanmedian(size)) for size in sizes)
        if not old or not new or max(old, new) < 1.02 * min(old, new) or step.ratio is None:
            continue
        each = step.ratio / (new / old)
        words = f"a step has {new:g} {name}, and had {old:g}: {each:.2f} times as long for each"
        return words, (each < TOLD) if step.ratio > 1 else (each > 1 / TOLD)
    return "", False
