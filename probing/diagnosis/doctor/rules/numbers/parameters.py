"""Rules about parameters: whether an optimizer trains them, and which.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. What a
parameter is trained by is counted, not guessed from one gradient: an optimizer's state and torch's
count of changes tell of all steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from .....units import size
from ...facts import Facts, percent
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from .gradients import BEHIND_SAMPLES_S, Row, listed

_MANY_STEPS = 40
_LISTED = re.compile(r"\.\d+\b")
_CALLED = "SELECT DISTINCT model, module FROM python.torch_trace WHERE stage = 'forward'"
_NEVER = 8
"""Parameters are changed in place so many times while they are made."""
_FEW_STEPS, _SURE_STEPS = 8, 200
"""Parameters may be averaged every so many steps, by hand."""
_EXCHANGED = 0.2
"""Gradients averaged by hand take so much of what the parameters do, however they are packed."""
_STEPPED = "SELECT DISTINCT optimizer FROM python.optimizer_steps"
_STEPPING = (
    "SELECT optimizer, max(optimizers) AS number FROM"
    " (FROM python.optimizer_steps ORDER BY seq DESC LIMIT 64) GROUP BY ALL"
)
"""One that trains first, and then another, are no two that change the same."""
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
_OF_A_LIST = (
    "Keep these modules in a torch.nn.ModuleList or ModuleDict: model.parameters() and state_dict()"
    " know nothing of those in a plain list."
)


def _no_optimizer(facts: Facts) -> Iterator[Sign]:
    """Parameters get gradients and are in no optimizer."""
    rows = facts.live("parameters")
    trained = {row["model"] for row in rows if row["optimizers"]}
    found = [
        row
        for row in rows
        if row["trainable"] and row["has_gradient"] and not row["optimizers"] and row["model"]
    ]
    if not found or not trained:
        return
    if not any(row["model"] in trained for row in found):
        yield from _of_others(facts, rows, found)
        return
    total = sum(row["numel"] or 0 for row in found)
    yield Sign(
        certainty="likely",
        summary=f"{len(found)} parameters get gradients and are in no optimizer, so that they never"
        f" change: {_names(found)}",
        evidence=(
            f"{total:,} numbers; they were changed {_versions(found)} times, as they were made",
        ),
        weight=0.7,
        fix=_OF_A_LIST if all("[" in row["parameter"] for row in found) else "",
    )


def _of_others(facts: Facts, rows: Sequence[Row], found: Sequence[Row]) -> Iterator[Sign]:
    """The optimizer has the parameters of no model that is called."""
    own = [row for row in rows if row["optimizers"]]
    steps = facts.steps
    is_unused = all(not row["has_gradient"] and not row["has_state"] for row in own)
    is_unchanged = all((row["version"] or 0) <= _NEVER for row in found)
    if not is_unused or not is_unchanged or any(row["model"] for row in own):
        return
    if len(steps) < _MANY_STEPS or steps.rows[-1]["optimizer"] is None:
        return
    yield Sign(
        certainty="likely",
        summary=f"{own[0]['optimizer']} trains other parameters than those of the model: all"
        f" {len(found)} that get gradients are in no optimizer, and none of the {len(own)} that it"
        " has gets any",
        evidence=(f"after {len(steps)} steps, those were changed {_versions(found)} times",),
        weight=1.0,
        fix="Make the optimizer from model.parameters() after the model has been copied, moved,"
        " loaded or wrapped.",
    )


def _two_optimizers(facts: Facts) -> Iterator[Sign]:
    found = [row for row in facts.live("parameters") if row["optimizers"] > 1 and row["trainable"]]
    newest = facts.rows(_STEPPING)
    if newest and all(row["number"] == 1 for row in newest):  # else one row may be of several
        stepping = {row["optimizer"] for row in newest}
        found = [row for row in found if len(stepping & _optimizers(row)) > 1]
    if not found:
        return
    yield Sign(
        certainty="likely",
        summary=f"{len(found)} parameters are in several optimizers ({found[0]['optimizer']}), each"
        f" of which changes them: {_names(found)}",
        evidence=(f"{sum(row['numel'] or 0 for row in found):,} numbers",),
        weight=0.6,
    )


def _never_trained(facts: Facts) -> Iterator[Sign]:
    """Parameters of an optimizer have never had a gradient."""
    if len(facts.steps) < _MANY_STEPS:
        raise NotLookedAt(f"only {len(facts.steps)} steps are on record")
    rows = [row for row in facts.live("parameters") if row["optimizers"] == 1 and row["trainable"]]
    found: list[Row] = []
    for name in {row["optimizer"] for row in rows}:
        own = [row for row in rows if row["optimizer"] == name]
        versions = [row["version"] for row in own if row["version"] is not None]
        usual = float(np.median(versions)) if versions else 0.0
        keeps_state = any(row["has_state"] for row in own)
        for row in own:
            is_unchanged = row["version"] is not None and row["version"] <= _NEVER
            is_stateless = not keeps_state or not row["has_state"]
            if is_stateless and is_unchanged and usual > 3 * _NEVER:
                found.append(row)
        if len(found) == len(rows):
            found = []
    found = [row for row in found if not row["has_gradient"]]
    if not found:
        return
    idle = _uncalled(facts, found)
    if len(idle) == len(found):
        yield _of_experts(found)
        return
    found = [row for row in found if row not in idle]
    yield Sign(
        certainty="likely",
        summary=f"{len(found)} parameters are in an optimizer and have never had a gradient, so"
        f" that they do not learn: {_names(found)}",
        evidence=(
            f"{sum(row['numel'] or 0 for row in found):,} numbers; the optimizer keeps no state for"
            " them, and does for the others"
            if any(row["has_state"] for row in rows)
            else "they were never changed, and the others were",
        ),
        weight=0.7,
    )


def _uncalled(facts: Facts, found: Sequence[Row]) -> list[Row]:
    """Those of a module that is never called, though another of its list is: an expert's."""
    called = {(row["model"], row["module"]) for row in facts.rows(_CALLED)}
    in_lists = {(model, _LISTED.sub(".*", module)) for model, module in called}
    return [
        row
        for row in found
        if (of := (row["model"], row["parameter"].rpartition(".")[0])) not in called
        and (of[0], _LISTED.sub(".*", of[1])) in in_lists
    ]


def _of_experts(found: Sequence[Row]) -> Sign:
    modules = sorted({row["parameter"].rpartition(".")[0] for row in found})
    return Sign(
        certainty="possible",
        summary=f"{len(found)} parameters are in an optimizer and have never had a gradient:"
        f" {_names(found)}; their modules were not called, and others of their list were",
        evidence=(
            f"no call of {listed(modules)} is on record: where a router chooses, nothing may have"
            " been routed to it yet",
        ),
        weight=0.3,
        fix="Nothing, if they come to be chosen; else balance the router's load, or call them.",
    )


def _idle_wrapper(facts: Facts) -> Iterator[Sign]:
    """Parameters are stepped past the wrapper that would average their gradients."""
    rows = [row for row in facts.live("parameters") if row.get("idle_wrapper")]
    if not rows:
        return
    steps = facts.steps
    if len(steps) < _FEW_STEPS:
        raise NotLookedAt(f"only {len(steps)} steps are on record")
    stepped = {row["optimizer"] for row in facts.rows(_STEPPED)}
    found = [row for row in rows if row["trainable"] and stepped & _optimizers(row)]
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
        if row["model"] in wrapped and row["trainable"] and stepped & _optimizers(row)
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


def _optimizers(row: Row) -> set[str]:
    return set((row["optimizer"] or "").split(", "))


def _names(rows: Sequence[Row]) -> str:
    return listed([row["parameter"] for row in rows])


def _versions(rows: Sequence[Row]) -> str:
    known = [row["version"] for row in rows if row["version"] is not None]
    if not known:
        return "an unknown number of"
    return f"{min(known)} to {max(known)}" if min(known) < max(known) else str(known[0])


_PARAMETERS = (
    'probing ENDPOINT query "SELECT parameter, trainable, optimizers, has_state, version'
    ' FROM python.parameters"'
)


RULES = (
    Rule(
        name="no-optimizer",
        group="numbers",
        subject="parameters",
        symptom="A part of the model stays as it was made.",
        evidence="python.parameters: trainable, with a gradient, in no optimizer, in a model of"
        " which an optimizer trains other parts, or none: then what optimizers have gets"
        f" none, after {_MANY_STEPS} steps. A frozen or averaged copy has no gradients.",
        certainty="likely",
        gravity=70,
        fix="Make the optimizer after the model is complete, or add_param_group what was replaced.",
        source="https://pytorch.org/docs/stable/optim.html",
        next=_PARAMETERS,
        look=_no_optimizer,
    ),
    Rule(
        name="two-optimizers",
        group="numbers",
        subject="parameters",
        symptom="A shared part of a model is changed twice in each step.",
        evidence="python.parameters: in more than one optimizer.",
        certainty="likely",
        gravity=62,
        fix="Give shared parameters to one optimizer, or make one optimizer with several groups.",
        next=_PARAMETERS,
        look=_two_optimizers,
    ),
    Rule(
        name="never-a-gradient",
        group="numbers",
        subject="parameters",
        symptom="A part of the model does not learn, though it is to be trained.",
        evidence=f"python.parameters after {_MANY_STEPS} steps: torch counts no change of them, and"
        " many of the others; an optimizer that keeps state keeps none for them. Only possible of"
        " modules that were never called while others of their list were, as experts are that"
        " nothing is routed to.",
        certainty="likely",
        gravity=68,
        fix="Look for a detach(), a no_grad, an argmax or a call of .item() or .numpy() between"
        " them and the loss; freeze what is not to be trained.",
        next=_PARAMETERS,
        asks=(_CALLED,),
        look=_never_trained,
    ),
    Rule(
        name="idle-wrapper",
        group="numbers",
        subject="parameters",
        symptom="More ranks do not make the training learn faster, and the checkpoint is that of"
        " one.",
        evidence="`idle_wrapper` of python.parameters: DistributedDataParallel of several ranks,"
        " whose forward has never run, or that is gone (only likely: it may have run before), has"
        " parameters of an optimizer that steps, and no step has"
        f" collectives of {percent(_EXCHANGED)} of their bytes, as averaging by hand has, beyond"
        " what other wrappers that are called move once. Certain without those, after"
        f" {_SURE_STEPS} steps, all on record.",
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
        evidence=f"python.collectives: none of more than {_OF_GRADIENTS} bytes in the newest"
        f" {_SURE_STEPS} steps, of a model inside DistributedDataParallel on several ranks whose"
        f" parameters, more than {2 * _OF_GRADIENTS} bytes, are in an optimizer that steps."
        " Averaging every so many steps (local SGD) is"
        " seen where it is more frequent than that.",
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
