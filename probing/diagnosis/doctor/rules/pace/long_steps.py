"""Where the time of long steps goes, of which there are too few on record for the other rules.

Rules of this file: as of `doctor.rules`. It needs no series of steps: how long those took that have
ended says that this is how the training runs, and samples of its stack say where it is meanwhile.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from .....units import duration
from ...facts import LEAST_STEPS, Facts, Steps, percent
from ...findings import Rule, Sign
from ...hot_lines import HotLine
from ...not_looked_at import NotLookedAt
from ..speed import MOST, in_words

_LONG_S = 1.0
_LEAST_ENDED = 3
_ALIKE = 2.0
"""The first steps of a training compile and load, and each takes less than the one before."""
_SHOWN = 3
_IDLE = 0.6
_OFTEN = 0.1
_OWN = ("other", "loss", "gradients", "to_device")
_FORWARD = frozenset({"_wrapped_call_impl", "_call_impl", "forward"})
_WAITS = re.compile(
    r"\.(?:item|cpu|tolist|numpy)\(\)|\b(?:synchronize|nonzero|float|bool|int)\(|\.to\(\s*['\"]cpu"
)
"""What waits for all that the device has to do."""
_ON_DEVICE = (
    "SELECT median(device_s) AS device_s FROM (SELECT sum(device_s) AS device_s"
    " FROM python.device_times WHERE depth = 0 OR stage = 'replay' GROUP BY step)"
)


def _few_long_steps(facts: Facts) -> Iterator[Sign]:
    """Steps take seconds each, most of them in lines of the script, or waiting for data."""
    ended = Steps(facts.steps.rows[facts.steps.begins_at_start :])
    took = ended.column("duration")
    is_few = len(facts.steps.settled()) < LEAST_STEPS
    if len(ended) < _LEAST_ENDED or took.min() < _LONG_S or took.max() > _ALIKE * took.min():
        facts.now()  # it says how many there are, where they are too few for other rules
        return
    if not is_few:
        return
    shares = ended.shares()
    share = sum(shares[phase] for phase in _OWN)
    what = "is code of the script outside of the model and the optimizer"
    if shares["data_wait"] >= MOST:
        share, what = shares["data_wait"], "is the wait for data"
    lines = _lines(facts) if share >= MOST else []
    if not lines or _waits_for_work(facts, ended, lines):
        return
    yield Sign(
        certainty="possible",
        summary=f"Steps take {duration(ended.median_s)} each, and {percent(share)} of that {what},"
        f" most at {lines[0].place} in {lines[0].func}: `{lines[0].source or lines[0].inner}`",
        evidence=(
            f"{len(ended)} steps took {duration(float(took.min()))} to"
            f" {duration(float(took.max()))}",
            *in_words(lines),
        ),
        weight=share,
    )


def _lines(facts: Facts) -> list[HotLine]:
    """The lines of the function in which the thread is for half of the time or more, if any is."""
    by_function: dict[tuple[str, str], list[HotLine]] = defaultdict(list)
    for line in facts.hot_lines():
        by_function[line.place.rpartition(":")[0], line.func].append(line)
    found = max(by_function.values(), key=_share, default=[])
    shown = [line for line in found if line.is_outside and not _is_of_model(line)][:_SHOWN]
    return shown if _share(found) >= MOST else []


def _is_of_model(line: HotLine) -> bool:
    """Whether a line calls a module, or is in its forward pass."""
    names = {name.rpartition(".")[2] for name in (*line.below, *line.above)}
    return not names.isdisjoint(_FORWARD)


def _share(lines: Sequence[HotLine]) -> float:
    return sum(line.share for line in lines)


def _waits_for_work(facts: Facts, ended: Steps, lines: Sequence[HotLine]) -> bool:
    """Whether the host only waits for a device that works, as it does in any `loss.item()`.

    Several lines of one loop that wait for long each wait for what was queued between them; where
    one is all, the device's own clock must tell that it idles.
    """
    waits = [line for line in lines if _WAITS.search(line.calls)]
    if not waits or np.isnan(ended.column("device_s")).all():
        return False
    try:
        rows = facts.rows(_ON_DEVICE)
    except NotLookedAt:
        rows = []
    worked_s = rows[0]["device_s"] if rows else None
    if worked_s is not None:
        return bool(worked_s > _IDLE * ended.median_s)
    return len([line for line in waits if line.in_loop and line.share >= _OFTEN]) < 2


RULES = (
    Rule(
        name="few-long-steps",
        group="slow",
        subject="speed",
        symptom="A step takes seconds, and there are too few of them for anything else to be told.",
        evidence=(
            f"Fewer than {LEAST_STEPS} steps after the first three, and {_LEAST_ENDED} or more"
            f" of {_LONG_S:.0f} s or longer, about as long as each other; half of it outside of"
            " the model and the optimizer, or in the wait for data, by python.steps; and half of"
            " the samples of two seconds in one function of the script, not in a wait for a"
            " device."
        ),
        certainty="possible",
        gravity=35,
        fix="Do in one operation what loops over samples. What the training needs no result of can"
        " be done in another process meanwhile.",
        next="probing ENDPOINT profile --sampling 10",
        look=_few_long_steps,
        cost_s=2.0,
    ),
)
