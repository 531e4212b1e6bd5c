"""Whether the machine, rather than the program, may be what makes steps longer.

Rules of this file: pure functions of steps, and no rules themselves. Neither the clock of a
processor nor who shares its caches is on record; both change all that is computed by one factor,
and often for some seconds only. Programs that take its processors preempt the training thread, and
that is on record. Its processor time then grows, too: threads that wait for one of their own that
has no processor spin meanwhile.
"""

from __future__ import annotations

import numpy as np

from ...facts import LEAST_STEPS, Steps, percent

LASTING_S = 3.0
"""Seconds of steps on both sides of a change, or under growth, from which it is no burst."""
_MODEL, _UPDATES = ("forward", "backward", "loss"), ("gradients", "optimizer")
_LEAST_SHARE = 0.03
"""What takes less of a step says nothing."""
_ALIKE = 0.5
"""All is longer alike where what grew least grew by this part of what grew most."""
OWN = 3.0
"""Caches and processors that others share make the same work longer, and not by so much."""
_PREEMPTED_PER_S, _OFTENER = 20.0, 1.5
"""So often a thread is preempted that has its processor to itself but for what the kernel does;
and by how much more often it may be than it was to be as it was."""
_SWITCHES = ("involuntary_switches", "voluntary_switches")
_LESS, _LITTLE = 0.9, 0.75
"""Others have a thread's processor where it has one for this part of the time that it had one for,
or for no more of what it computes in than this."""
_WAITS = ("data_wait", "gradient_sync", "other")


def is_lasting(*parts: Steps) -> bool:
    """Whether each of these parts of a training is longer than a burst of others' work."""
    return all(part.total_s >= LASTING_S for part in parts)


def words_of_all_alike(before: Steps, after: Steps) -> str:
    """That the model and the updates of its weights take longer by one factor; empty if not.

    A program that does more does so in one of them: who changes a model leaves its optimizer.
    """
    grown = [
        new / old - 1
        for phases in (_MODEL, _UPDATES)
        for old, new in [tuple(_per_step(part, phases) for part in (before, after))]
        if old >= _LEAST_SHARE * before.total_s / len(before)
    ]
    if len(grown) < 2 or min(grown) <= 0 or min(grown) < _ALIKE * max(grown):
        return ""
    return "all that it computes takes longer alike, as on a processor that is slower"


def _per_step(steps: Steps, phases: tuple[str, ...]) -> float:
    return sum(steps.seconds(phase) for phase in phases) / len(steps)


def own_words(before: Steps, after: Steps) -> tuple[str, ...]:
    """That the thread itself computes longer by more than others can make it; none else.

    Its processor time tells that of steps in which others leave it its processor. Where they do not
    in most of them, those in which they do must show it.
    """
    told = _quiet(before, after) if crowd_words(before, after) else after
    more = _computes_more(before, told) if len(told) >= LEAST_STEPS or told is after else 1.0
    words = f"the training thread computes {more:.1f} times as long in each"
    return (words,) if more >= OWN else ()


def _computes_more(before: Steps, after: Steps) -> float:
    """How many times the processor time of the training thread in a step is what it was."""
    old, new = (part.column("cpu_s") for part in (before, after))
    if np.isnan(old).all() or np.isnan(new).all() or not np.nanmedian(old):
        return 1.0
    return float(np.nanmedian(new) / np.nanmedian(old))


def _quiet(before: Steps, after: Steps) -> Steps:
    """The later steps in which the thread is hardly preempted, or has a processor all the time.

    Then it may be preempted as often as it was: others wait for it.
    """
    most = _OFTENER * _preempted_per_s(before)
    kept = []
    for row in after.rows:
        per_s = _preempted_per_s(one := Steps([row]))
        if per_s <= 2 * _PREEMPTED_PER_S or (per_s <= most and processor_share(one) >= _LESS):
            kept.append(row)
    return Steps(kept)


def left_alone(steps: Steps) -> Steps:
    """The steps in which the training thread is hardly preempted; none where that is not known."""
    taken = steps.column(_SWITCHES[0], missing=np.inf)
    is_quiet = taken <= 2 * _PREEMPTED_PER_S * steps.column("duration")
    return Steps([row for row, is_one in zip(steps.rows, is_quiet, strict=True) if is_one])


def is_as_crowded(before: Steps, after: Steps) -> bool:
    """Whether others have no more of the training thread's processors than they had before."""
    old, new = (_preempted_per_s(part) for part in (before, after))
    has_as_much = processor_share(after) >= _LESS * processor_share(before)
    return has_as_much and new <= _OFTENER * max(old, _PREEMPTED_PER_S)


def _preempted_per_s(steps: Steps) -> float:
    taken = float(steps.column(_SWITCHES[0], missing=0.0).sum())
    return taken / steps.total_s if steps.total_s else 0.0


def crowd_words(before: Steps, after: Steps) -> str:
    """That others have the processors of the training thread; empty where they have not.

    They may have had them before, too, and have more of them since.
    """
    old, new = processor_share(before), processor_share(after)
    taken, given = (float(after.column(name, missing=0.0).sum()) for name in _SWITCHES)
    per_s = _preempted_per_s(after)
    if min(new / _LITTLE, new / (_LESS * old) if old else 1.0) >= 1 or taken <= given:
        return ""
    if per_s <= 2 * _PREEMPTED_PER_S:
        return ""
    return (
        f"other programs use its cores: the training thread had a processor for {percent(old)} of"
        f" the time and has it for {percent(new)}, and is preempted {per_s:.0f} times a second"
    )


def processor_share(steps: Steps) -> float:
    """For what part of the phases in which it computes the training thread has a processor.

    At most that: in the others it may wait or sleep of its own will, but what it computes in them
    counts. 1 where that was not measured.
    """
    used = steps.column("cpu_s")
    waits = sum(steps.seconds(phase) for phase in _WAITS)
    whole = steps.total_s - waits
    if whole <= 0 or np.isnan(used).any():
        return 1.0
    return min(1.0, float(used.sum()) / whole)
