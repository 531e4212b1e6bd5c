"""Gradients that are averaged over the ranks in each micro-batch of a step, where once would do.

Rules of this file: what is exchanged is counted in elements, so that buckets of any size and type
are told alike; only a wrapper that has `no_sync` is looked at. FSDP is left out: it has to reduce
in each pass, unless whole gradients find room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .....units import size
from ...facts import LEAST_STEPS, Facts, percent
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from ..numbers.gradients import SAMPLING_S, sampled

_WRAPPER = "DistributedDataParallel"
_WORTH, _LEAST = 0.2, 0.1
"""What part of a step is to be had: below a tenth a step is longer or shorter by itself."""
_WHOLE = 0.9
"""Of all trained elements, in each pass: a bucket may be left out of a count."""
_OF_GRADIENTS = 256
"""Bytes: metrics are smaller, and are averaged in each pass on purpose."""
_NETWORK = 10e9
"""Bytes per second, of a fast network between machines: within one it takes less."""
_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
_WAITED = (
    "SELECT step, coalesce(sum(gradient_sync_s), 0)"
    " - coalesce(arg_max(gradient_sync_s, micro_batch), 0) AS waited"
    " FROM python.micro_batches WHERE duration IS NOT NULL AND step BETWEEN {first} AND {last}"
    " GROUP BY step"
)
"""What all passes of a step but the last have waited for."""
_REDUCED = (
    "SELECT step, dtypes, sum(bytes)::BIGINT AS bytes, mode(caller) AS caller"
    " FROM python.collectives WHERE op = 'all_reduce' AND group_size > 1 AND bytes > {least}"
    " AND failed IS NOT TRUE AND step BETWEEN {first} AND {last} GROUP BY step, dtypes"
)


class _Exchange(NamedTuple):
    """What the all_reduces of a step move.

    Attributes:
        times: How often all that is trained, in the middle.
        moved: How many bytes.
        caller: The line that they come from.
    """

    times: float
    moved: float
    caller: str


def _no_sync(facts: Facts) -> Iterator[Sign]:
    """All gradients are averaged in each of several backward passes of a step."""
    now = facts.now()
    passes = int(np.median(now.column("micro_batches", missing=1.0)))
    rows = [
        row
        for row in now.rows
        if row["micro_batches"] == passes and row["optimizer_steps"] in {None, 1}
    ]
    if passes < 2 or len(rows) < max(LEAST_STEPS, len(now) / 2):
        return
    within = {"first": rows[0]["step"], "last": rows[-1]["step"]}
    reduced = facts.rows(_REDUCED.format(least=_OF_GRADIENTS, **within))
    if not reduced:
        return
    trained = _trained(facts)
    found = _exchange(reduced, {row["step"] for row in rows}, trained)
    if not trained or found is None or found.times < _WHOLE * passes:
        return
    share = _waited(facts.rows(_WAITED.format(**within)), rows)
    is_seen = share > 0 and rows[-1]["device_s"] is None
    extra = found.moved * (passes - 1) / passes
    if not is_seen:
        share = max(share, extra / _NETWORK / float(np.median([row["duration"] for row in rows])))
    if share < _LEAST or _are_thrown_away(facts, passes):
        return
    yield Sign(
        certainty="likely" if is_seen and share >= _WORTH else "possible",
        summary=_summary(passes, share, is_seen=is_seen),
        evidence=(
            f"all_reduce at {found.caller} moves {size(found.moved)} in a step,"
            f" {found.times:.1f} times the {trained:,} parameters that are trained:"
            f" {size(extra)} of it need not be",
            "who waits for a slower rank waits there, too, and would wait for it all the same"
            if is_seen
            else "how long that is waited for is not on record, as on a device, or where a hook of"
            " the wrapper's communicates",
        ),
        weight=min(1.0, share),
    )


def _summary(passes: int, share: float, *, is_seen: bool) -> str:
    first = f"the first {passes - 1}" if passes > 2 else "the first"
    cost = (
        f"waiting in {first} takes {percent(share)} of it"
        if is_seen
        else f"{first} would take {percent(share)} of it on a network of {_NETWORK / 1e9:.0f} GB a"
        " second"
    )
    return (
        f"The gradients are averaged over the ranks in each of the {passes} backward passes of a"
        f" step, and {cost}: once is enough, in the last"
    )


def _waited(waits: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> float:
    """What part of a step is waiting in all of its passes but the last, in the middle."""
    waited = {row["step"]: row["waited"] for row in waits}
    return float(np.median([waited.get(row["step"], 0.0) / row["duration"] for row in rows]))


def _trained(facts: Facts) -> int:
    """How many elements the gradients have that such wrappers average."""
    wrapped = {row["model"] for row in facts.live("models") if _WRAPPER in (row["wrappers"] or "")}
    if not wrapped:
        return 0
    rows = facts.live("parameters")
    return sum(row["numel"] or 0 for row in rows if row["model"] in wrapped and row["trainable"])


def _exchange(rows: Sequence[Mapping[str, Any]], steps: set[int], trained: int) -> _Exchange | None:
    """What is exchanged in some steps."""
    elements, moved = dict.fromkeys(steps, 0.0), dict.fromkeys(steps, 0)
    for row in rows:
        if row["step"] in steps:
            elements[row["step"]] += row["bytes"] / _BYTES.get(row["dtypes"], 4)
            moved[row["step"]] += row["bytes"]
    if not trained or not steps:
        return None
    callers = [row["caller"] for row in rows if row["caller"]]
    return _Exchange(
        times=float(np.median(list(elements.values()))) / trained,
        moved=float(np.median(list(moved.values()))),
        caller=max(callers, key=callers.count, default="a line that is not known"),
    )


def _are_thrown_away(facts: Facts, passes: int) -> bool:
    """Whether gradients of all passes but the last are dropped: a sharper minimum is looked for.

    Then each of them is averaged for a step of its own. Where that cannot be seen, they are not.
    """
    try:
        rows = sampled(facts)
    except NotLookedAt:
        return False
    known = [row for row in rows if row["kept_passes"] is not None]
    return bool(known) and all(row["kept_passes"] < passes for row in known)


RULES = (
    Rule(
        name="no-sync",
        group="slow",
        subject="ranks",
        symptom="Accumulating gradients over more micro-batches does not make more samples a"
        " second; most of a step is all_reduce.",
        evidence=(
            "python.collectives beside `micro_batches` of python.steps: the all_reduces of a step"
            f" move {_WHOLE} times as many elements as {_WRAPPER} averages, or more, for each"
            " of its backward passes, where one optimizer steps. `gradient_sync_s` of all"
            f" micro-batches but the last is {percent(_WORTH)} of a step; only possible from"
            f" {percent(_LEAST)} on, and where the waiting is not on record, as on a device: by"
            f" the bytes, at {_NETWORK / 1e9:.0f} GB a second. Not where `kept_passes`"
            " of python.gradients shows that nothing is accumulated."
        ),
        certainty="likely",
        gravity=45,
        fix="Run forward and backward of all micro-batches but the last under `with"
        " model.no_sync():`; Accelerate does so in `with accelerator.accumulate(model):`,"
        " Lightning by accumulate_grad_batches.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel"
        ".html",
        next='probing ENDPOINT query "SELECT step, op, caller, count(*), sum(bytes)'
        ' FROM python.collectives GROUP BY ALL ORDER BY step DESC LIMIT 10"',
        look=_no_sync,
        cost_s=SAMPLING_S,
    ),
)
