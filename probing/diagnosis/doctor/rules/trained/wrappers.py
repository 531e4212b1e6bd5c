"""Rules about wrappers that average gradients over ranks: those past which a model is trained.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from .....units import size
from ...facts import Facts, percent
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from ..numbers.gradients import BEHIND_SAMPLES_S
from .parameters import optimizers_of

_FEW_STEPS, _SURE_STEPS = 8, 200
"""Parameters may be averaged every so many steps, by hand."""
_EXCHANGED = 0.2
"""Gradients averaged by hand take so much of what the parameters do, however they are packed."""
_STEPPED = "SELECT DISTINCT optimizer FROM python.optimizer_steps"
_MOST_EXCHANGED = (
    "SELECT coalesce(max(total), 0) AS most FROM (SELECT sum(bytes) AS total"
    " FROM python.collectives WHERE step > (SELECT coalesce(min(step), 0) FROM python.steps)"
    " GROUP BY step)"
)
"""Without the oldest step: in the first one the wrapper sends all parameters as it is made."""
_GROUPED = "SELECT max(size) AS ranks FROM python.process_groups"
_OF_GRADIENTS = 256
"""Bytes: metrics are smaller, and gradients are not, however they are packed (PowerSGD, rank 1)."""
_LAST_EXCHANGE = (
    "SELECT (SELECT max(step) FROM python.collectives WHERE bytes > {bytes}) AS last,"
    " (SELECT max(bytes) FROM python.collectives WHERE step > {since}) AS most"
)
_AVERAGES = "DistributedDataParallel"


def _idle_wrapper(facts: Facts) -> Iterator[Sign]:
    """Parameters are stepped past the wrapper that would average their gradients."""
    rows = [row for row in facts.live("parameters") if row.get("idle_wrapper")]
    if not rows:
        return
    steps = facts.steps
    if len(steps) < _FEW_STEPS:
        raise NotLookedAt(f"only {len(steps)} steps are on record")
    stepped = {row["optimizer"] for row in facts.rows(_STEPPED)}
    found = [row for row in rows if row["trainable"] and stepped & optimizers_of(row)]
    if not found:
        return
    total = sum(row["bytes"] or 0 for row in found)
    most = facts.rows(_MOST_EXCHANGED)[0]["most"]
    others = _inside_called(facts)
    if most - others >= _EXCHANGED * total:
        return  # somebody averages them by hand
    name, is_gone, _ = found[0]["idle_wrapper"].partition(" (gone)")
    model, is_whole = found[0]["model"], steps.begins_at_start and not is_gone
    is_sure = is_whole and len(steps) >= _SURE_STEPS and most < _EXCHANGED * total
    yield Sign(
        certainty="certain" if is_sure else "likely",
        summary=f"{name} was made around {model} and is"
        f" {'held by nobody any more' if is_gone else 'never called'}: the script calls the model"
        f" inside, so that no gradient is averaged and each rank trains {model} by itself",
        since_step=0 if is_whole else None,
        evidence=(
            f"{len(found)} parameters of it are in {found[0]['optimizer']}, which steps; the"
            f" wrapper {'is gone' if is_gone else 'has never run a forward'}",
            f"collectives of a step move {size(most)} at the most, and the parameters are"
            f" {size(total)}"
            + (f"; those of models whose wrapper is called are {size(others)}" if others else ""),
        ),
        weight=1.0,
    )


def _inside_called(facts: Facts) -> int:
    """What parameters take whose wrapper is called: it moves as much once in each step."""
    wrapped = {row["model"] for row in facts.live("models") if _AVERAGES in (row["wrappers"] or "")}
    rows = facts.live("parameters")
    return sum(row["bytes"] or 0 for row in rows if row["model"] in wrapped and row["trainable"])


def _never_synced(facts: Facts) -> Iterator[Sign]:
    """The wrapper that averages gradients is called, and does not average them."""
    wrapped = {row["model"] for row in facts.live("models") if _AVERAGES in (row["wrappers"] or "")}
    if not wrapped or (facts.rows(_GROUPED)[0]["ranks"] or 0) < 2:
        return
    source = next((r for r in facts.live("sources") if r["source"] == "collectives"), None)
    if source is None or source["state"] != "on" or "not seen" in (source["note"] or ""):
        raise NotLookedAt("collectives are not on record")
    steps = facts.steps
    if len(steps) < _SURE_STEPS:
        raise NotLookedAt(f"only {len(steps)} steps are on record")
    stepped = {row["optimizer"] for row in facts.rows(_STEPPED)}
    found = [
        row
        for row in facts.live("parameters")
        if row["model"] in wrapped and row["trainable"] and stepped & optimizers_of(row)
    ]
    if not found:
        return
    model, total = found[0]["model"], sum(row["bytes"] or 0 for row in found)
    if total <= 2 * _OF_GRADIENTS:  # in half precision as few as metrics
        raise NotLookedAt(f"the parameters of {model} are {size(total)} only")
    since = steps.numbers[-_SURE_STEPS]
    last = facts.rows(_LAST_EXCHANGE.format(bytes=_OF_GRADIENTS, since=since))[0]
    if last["last"] is not None and last["last"] >= since:
        return
    is_new = last["last"] is None or last["last"] > steps.numbers[0]
    yield Sign(
        certainty="likely",
        summary=f"{_AVERAGES} is called around {model} and averages no gradients: each rank trains"
        f" {model} by itself",
        since_step=(last["last"] or 0) + 1 if is_new and steps.begins_at_start else None,
        evidence=(
            f"the newest {_SURE_STEPS} steps have no collective of more than"
            f" {size(last['most'] or 0)}, and its {len(found)} parameters are {size(total)}",
        ),
        weight=1.0,
    )


RULES = (
    Rule(
        name="idle-wrapper",
        group="numbers",
        subject="parameters",
        symptom="More ranks do not make the training learn faster, and the checkpoint is that of"
        " one.",
        evidence=(
            "`idle_wrapper` of python.parameters: DistributedDataParallel of several ranks, whose"
            " forward has never run (only likely where it is gone), has parameters of an optimizer"
            f" that steps, and no step has collectives of {percent(_EXCHANGED)} of their bytes"
            f" beside those of other wrappers. Certain without any, after {_SURE_STEPS} steps,"
            " all on record."
        ),
        certainty="certain",
        gravity=75,
        fix="Call the wrapper in training, as `ddp(x)`: gradients are averaged for its own forward"
        " only. `ddp.module` is for evaluation and checkpoints. Start again: by now the ranks have"
        " different parameters.",
        source="https://pytorch.org/docs/stable/notes/ddp.html",
        next='probing ENDPOINT query "SELECT model, parameter, optimizer, idle_wrapper'
        ' FROM python.parameters"',
        look=_idle_wrapper,
    ),
    Rule(
        name="never-synced",
        group="numbers",
        subject="parameters",
        symptom="More ranks do not make the training learn faster, and the checkpoint is that of"
        " one.",
        evidence=(
            f"python.collectives: none of more than {_OF_GRADIENTS} bytes in the newest"
            f" {_SURE_STEPS} steps, of a model inside DistributedDataParallel on several ranks"
            f" whose parameters, more than {2 * _OF_GRADIENTS} bytes, are in an optimizer that"
            " steps. Local SGD that averages more often is none."
        ),
        certainty="likely",
        gravity=71,
        fix="Look for `no_sync()` that is on in every backward pass: the one before the optimizer"
        " steps has to be outside of it. Start again: by now the ranks have different parameters.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel"
        ".html",
        next='probing ENDPOINT query "SELECT op, caller, max(bytes), max(step), count(*)'
        ' FROM python.collectives GROUP BY ALL"',
        asks=(_GROUPED, _STEPPED),
        look=_never_synced,
        cost_s=BEHIND_SAMPLES_S,
    ),
)
