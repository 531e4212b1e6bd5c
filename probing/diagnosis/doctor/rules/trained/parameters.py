"""Rules about parameters: whether an optimizer trains them, and which.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. What a
parameter is trained by is counted, not guessed from one gradient: an optimizer's state and torch's
count of changes tell of all steps. A gradient that could not be read may be there or not: nothing
is found then, and that is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set as AbstractSet

import numpy as np

from ...facts import Facts
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from ..numbers.gradients import Row, listed

Calls = AbstractSet[tuple[str, str]]
"""Models, and modules of them that were called."""

_MANY_STEPS = 40
_LISTED = re.compile(r"\.\d+\b")
_CALLED = "SELECT DISTINCT model, module FROM python.torch_trace WHERE stage = 'forward'"
_NEVER = 8
"""Parameters are changed in place so many times while they are made."""
_UNREAD = (
    "whether {names} {have} a gradient is not known: no step has ended while python.parameters"
    " waited for one, or another thread trains"
)
_STEPPING = (
    "SELECT step, optimizer, optimizers AS number, (SELECT count(*) FROM python.micro_batches b"
    " WHERE b.step = o.step AND backward_s IS NOT NULL"
    " AND b.start_ns + b.duration_ns <= o.start_ns) AS passes"
    " FROM (FROM python.optimizer_steps ORDER BY seq DESC LIMIT 64) o"
)
"""One that trains first, and then another, are no two that change the same."""
_OF_A_LIST = (
    "Keep these modules in a torch.nn.ModuleList or ModuleDict: model.parameters() and state_dict()"
    " know nothing of those in a plain list."
)


def _no_optimizer(facts: Facts) -> Iterator[Sign]:
    """Parameters get gradients and are in no optimizer."""
    rows = facts.live("parameters")
    trained = {row["model"] for row in rows if row["optimizers"]}
    alone = [row for row in rows if row["trainable"] and not row["optimizers"] and row["model"]]
    found = [row for row in alone if row["has_gradient"]]
    if not alone or not trained:
        return
    if found and not any(row["model"] in trained for row in found):
        yield from _of_others(facts, rows, found)
        found = []
    found = [row for row in found if _is_as_made(row)]  # else by hand, as a Lagrange multiplier is
    if not found:
        _need_read([row for row in alone if row["model"] in trained and _is_as_made(row)])
        return
    total = sum(row["numel"] or 0 for row in found)
    yield Sign(
        certainty="likely",
        summary=f"{len(found)} parameters get gradients and are in no optimizer, so that they never"
        f" change: {_names(found)}",
        evidence=(f"{total:,} numbers; they were changed {_versions(found)}, as they were made",),
        weight=0.7,
        fix=_OF_A_LIST if all("[" in row["parameter"] for row in found) else "",
    )


def _of_others(facts: Facts, rows: Sequence[Row], found: Sequence[Row]) -> Iterator[Sign]:
    """The optimizer has the parameters of no model that is called."""
    own = [row for row in rows if row["optimizers"]]
    steps = facts.steps
    is_unused = not any(row["has_gradient"] or row["has_state"] for row in own)
    is_unchanged = all(map(_is_as_made, found))
    if not is_unused or not is_unchanged or any(row["model"] for row in own):
        return
    if len(steps) < _MANY_STEPS or steps.rows[-1]["optimizer"] is None:
        return
    _need_read(own)
    yield Sign(
        certainty="likely",
        summary=f"{own[0]['optimizer']} trains other parameters than those of the model: all"
        f" {len(found)} that get gradients are in no optimizer, and none of the {len(own)} that it"
        " has gets any",
        evidence=(f"after {len(steps)} steps, those were changed {_versions(found)}",),
        weight=1.0,
        fix="Make the optimizer from model.parameters() after the model has been copied, moved,"
        " loaded or wrapped.",
    )


def _two_optimizers(facts: Facts) -> Iterator[Sign]:
    """Parameters are stepped by several optimizers."""
    found = [row for row in facts.live("parameters") if row["optimizers"] > 1 and row["trainable"]]
    newest = facts.rows(_STEPPING)
    is_told = bool(newest) and all(row["number"] == 1 for row in newest)  # else a row is of several
    if is_told:
        stepping = {row["optimizer"] for row in newest}
        found = [row for row in found if len(stepping & optimizers_of(row)) > 1]
    if not found:
        return
    in_turn = is_told and not any(_share_a_pass(newest, optimizers_of(row)) for row in found)
    yield Sign(
        certainty="possible" if in_turn else "likely",
        summary=f"{len(found)} parameters are in several optimizers ({found[0]['optimizer']}), each"
        f" of which changes them: {_names(found)}",
        evidence=(
            f"{sum(row['numel'] or 0 for row in found):,} numbers",
            *(("each steps after a backward pass of its own, as of a loss of its own",) * in_turn),
        ),
        weight=0.6,
        fix="Nothing, if each is meant to train them by its own loss." if in_turn else "",
    )


def _share_a_pass(newest: Sequence[Row], optimizers: set[str]) -> bool:
    """Whether two of these optimizers step in one step without a backward pass between them."""
    stepped = Counter(
        (row["step"], row["passes"]) for row in newest if row["optimizer"] in optimizers
    )
    return max(stepped.values(), default=0) > 1


def _never_trained(facts: Facts) -> Iterator[Sign]:
    """Parameters of an optimizer have never had a gradient."""
    if len(facts.steps) < _MANY_STEPS:
        raise NotLookedAt(f"only {len(facts.steps)} steps are on record")
    rows = [row for row in facts.live("parameters") if row["optimizers"] == 1 and row["trainable"]]
    unread = _never_changed(rows)
    found = [row for row in unread if row["has_gradient"] is False]
    if not found:
        _need_read(unread)
        return
    called = {(row["model"], row["module"]) for row in facts.rows(_CALLED)}
    idle = _uncalled(called, found)
    found = [row for row in found if row not in idle]
    tops = [_never_called(called, row) for row in found]
    if all(tops):
        yield _of_unused(found, tops) if found else _of_experts(idle)
        return
    found = [row for row, top in zip(found, tops, strict=True) if not top]
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


def _never_changed(rows: Sequence[Row]) -> list[Row]:
    """Those that their optimizer has never changed, and for which it keeps no state."""
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
    return found


def _uncalled(called: Calls, found: Sequence[Row]) -> list[Row]:
    """Those of a module that is never called, though another of its list is: an expert's."""
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


def _never_called(called: Calls, row: Row) -> str:
    """The module around a parameter of which nothing is called, though something beside it is.

    Empty where there is none. What torch.compile or a function has made of a module's inside is
    not called either, but then nothing beside it is.
    """
    names = row["parameter"].split(".")[:-1]
    own = [module for model, module in called if model == row["model"] and module]
    for depth in range(1, len(names) + 1):
        top, around = ".".join(names[:depth]), "".join(f"{name}." for name in names[: depth - 1])
        if not any(f"{module}.".startswith(f"{top}.") for module in own):
            return top if any(module.startswith(around) for module in own) else ""
    return ""


def _of_unused(found: Sequence[Row], tops: Sequence[str]) -> Sign:
    modules = sorted(set(tops))
    is_one = len(modules) == 1
    return Sign(
        certainty="possible",
        summary=f"{len(found)} parameters are in an optimizer and have never had a gradient:"
        f" {_names(found)}; {listed(modules)} {'is' if is_one else 'are'} never called",
        evidence=(f"no call of {listed(modules)} is on record, and calls beside it are",),
        weight=0.3,
        fix=f"Call {'it' if is_one else 'them'} in forward, if that was forgotten; else freeze"
        f" {'it' if is_one else 'them'}. Where only the weights are used there, look for a detach()"
        " or a no_grad behind them.",
    )


def _need_read(rows: Sequence[Row]) -> None:
    """Make sure that it is known of parameters whether they have a gradient.

    Raises:
        NotLookedAt: Of some it is not.
    """
    unread = [row for row in rows if row["has_gradient"] is None]
    if unread:
        have = "has" if len(unread) == 1 else "have"
        raise NotLookedAt(_UNREAD.format(names=_names(unread), have=have))


def _is_as_made(row: Row) -> bool:
    """Whether nothing has changed a parameter since it was made, as far as that is counted."""
    return (row["version"] or 0) <= _NEVER


def optimizers_of(row: Row) -> set[str]:
    """The names of those that have a parameter."""
    return set((row["optimizer"] or "").split(", "))


def _names(rows: Sequence[Row]) -> str:
    return listed([row["parameter"] for row in rows])


def _versions(rows: Sequence[Row]) -> str:
    known = [row["version"] for row in rows if row["version"] is not None]
    if not known:
        return "an unknown number of times"
    least, most = min(known), max(known)
    if least < most:
        return f"{least} to {most} times"
    return "once" if most == 1 else f"{most} times"


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
        evidence=(
            "python.parameters: trainable, with a gradient, in no optimizer, not changed since it"
            " was made, in a model of which an optimizer trains other parts, or none (then what"
            f" optimizers have gets no gradient), after {_MANY_STEPS} steps. What the script"
            " changes by itself has another `version`."
        ),
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
        evidence="python.parameters: in more than one optimizer; python.optimizer_steps and"
        " python.micro_batches: two of those step behind one backward pass. Only possible where"
        " each has a pass of its own before its step, as of a loss of its own.",
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
        evidence=(
            f"python.parameters after {_MANY_STEPS} steps: torch counts no change of them, and"
            " many of the others; an optimizer that keeps state keeps none for them. Only possible"
            " of modules that were never called: experts that nothing is routed to, a pooler that"
            " is not used, or a layer that was forgotten."
        ),
        certainty="likely",
        gravity=68,
        fix="Look for a detach(), a no_grad, an argmax or a call of .item() or .numpy() between"
        " them and the loss; freeze what is not to be trained.",
        next=_PARAMETERS,
        asks=(_CALLED,),
        look=_never_trained,
    ),
)
