"""Rules about gradients: those that are nothing, too much, or never used.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. Gradients are
looked at in a few steps, all rules together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .....units import figure
from ....arming import sample_gradients
from ...facts import Facts
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from .constant_loss import all_zero

Row = dict[str, Any]
_GRADIENTS = (
    "SELECT step, model, parameter, norm, numel, weight_norm, update_ratio, passes, kept_passes,"
    " has_older, left_by, subnormal_share, weight_subnormal_share, state_subnormal_share,"
    " optimizer FROM python.gradients WHERE step BETWEEN {first} AND {last} ORDER BY seq"
)
_SAMPLED = 3
LONGEST_STEP_S = 4.0
SAMPLING_S = 1.8
"""What waits for the same few steps is judged before samples are taken: it is graver."""
BEHIND_SAMPLES_S = SAMPLING_S + 0.1
"""What asks for every module is judged once the next few steps have been looked at."""
_TRAINS = ("backward_s", "gradients_s", "optimizer_s", "optimizer")
"""What a step has one of where something is trained."""
_VANISHED = 1e-7
_VANISHING_PART = 0.25
_LEFT_TIMES = 2
_OWN_ZERO = (
    "Call zero_grad() of their optimizer right before their own backward pass, not behind its step;"
    " or freeze them (requires_grad_(False)) in the pass for the other one."
)
_OF_THE_TIME = 0.25
"""What part of the time that is left the wait for these steps may take, if somebody gave more."""
MOST_NAMED = 3


def sampled(facts: Facts) -> list[Row]:
    """The gradients of the next few steps.

    Raises:
        NotLookedAt: Steps take too long, or nothing trains.
    """
    now = facts.now()
    if now.median_s > LONGEST_STEP_S:
        raise NotLookedAt(f"a step takes {now.median_s:.1f} s: `gradients` looks at them")
    if not any(row[name] is not None for row in now.rows for name in _TRAINS):
        raise NotLookedAt("no training is seen: each step is a call of a model")
    limit_s = max(5.0, 5 * now.median_s, _OF_THE_TIME * facts.seconds_left)

    def ask() -> list[Row]:
        watch = sample_gradients(facts.process, _SAMPLED, timeout_s=limit_s)
        if watch.armed.state == "failed":
            raise NotLookedAt(str(watch.armed.reason))
        facts.ask("notes on gradients", lambda: watch.armed.notes)
        first, last = watch.armed.first_step or 0, watch.armed.last_step or 0
        return facts.process.query(_GRADIENTS.format(first=first, last=last)).to_pylist()

    return facts.ask("gradients", ask)


def notes_of_sampled(facts: Facts) -> tuple[str, ...]:
    """What the agent has to say of the steps that were sampled.

    Raises:
        NotLookedAt: As `sampled`.
    """
    sampled(facts)
    return facts.ask("notes on gradients", tuple)


def _by_parameter(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['model']} {row['parameter']}", []).append(row)
    return found


def _dead(facts: Facts) -> Iterator[Sign]:
    """All gradients of a module are exactly zero."""
    rows = sampled(facts)
    steps = {row["step"] for row in rows}
    if len(steps) < _SAMPLED:
        return
    modules: dict[str, list[Row]] = {}
    for row in rows:
        module = row["parameter"].rpartition(".")[0]
        modules.setdefault(f"{row['model']} {module}", []).append(row)
    dead = [
        name.partition(" ")[2] or name
        for name, own in modules.items()
        if _is_zero(own) and {row["step"] for row in own} == steps
    ]
    if not dead or len(dead) == len(modules):
        if modules and len(dead) == len(modules):
            yield all_zero(facts, len(modules), sorted(steps))
        return
    is_chosen = _are_of_lists(facts, [name for name, own in modules.items() if _is_zero(own)])
    why = (
        "others of their list have some, so that nothing may be routed to them in these steps"
        if is_chosen
        else "what is behind it lets none through, as a ReLU whose inputs are all negative"
    )
    yield Sign(
        certainty="possible" if is_chosen else "likely",
        summary=f"The gradients of {listed(dead)} are exactly zero in each of {len(steps)} steps:"
        f" {why}",
        evidence=(f"steps {min(steps)} to {max(steps)}; {len(modules) - len(dead)} other modules"
                  " have gradients",),
        weight=0.6,
    )  # fmt: skip


def _is_zero(rows: Sequence[Row]) -> bool:
    return all(row["norm"] == 0 for row in rows)


def _are_of_lists(facts: Facts, names: Sequence[str]) -> bool:
    """Whether each of some modules is in a ModuleList of which others are not among them: experts.

    Args:
        names: Model and module of each.
    """
    rows = facts.live("modules")
    lists = {f"{r['model']} {r['module']}" for r in rows if r["class"] == "ModuleList"}
    every = {f"{row['model']} {row['module']}" for row in rows}

    def member_of(name: str) -> tuple[str, str] | None:
        parts = name.split(".")
        places = (n for n in range(len(parts) - 1, 0, -1) if parts[n].isdecimal())
        found = next((n for n in places if ".".join(parts[:n]) in lists), None)
        return None if found is None else (".".join(parts[:found]), parts[found])

    dead = {member_of(name) for name in names}
    all_members = {member for name in every if (member := member_of(name)) is not None}
    return None not in dead and all(
        any(of == one[0] and (of, number) not in dead for of, number in all_members)
        for one in dead
        if one is not None
    )


def _vanishing(facts: Facts) -> Iterator[Sign]:
    """The gradients of the first layers are next to nothing beside those of the last."""
    found = [(name, own) for name, own in _by_parameter(sampled(facts)).items()
             if name.endswith("weight")]  # fmt: skip
    sizes = [
        float(np.median([row["norm"] for row in own])) / max(1, own[0]["numel"]) ** 0.5
        for _, own in found
    ]
    if len(sizes) < 6 or not np.isfinite(sizes).all() or max(sizes) == 0:
        return
    small = [size < _VANISHED * max(sizes) for size in sizes]
    first = small.index(False) if False in small else len(small)
    if not small[0] or first < max(2, _VANISHING_PART * len(small)) or max(sizes[:first]) == 0:
        return
    yield Sign(
        certainty="likely",
        summary=f"The gradients vanish on the way back: those of {found[0][0].split()[-1]} are"
        f" {figure(sizes[0] / max(sizes), 1)} of the largest, and {first} of {len(sizes)} layers"
        " get practically none",
        evidence=(
            f"root mean square {figure(sizes[0], 2)} in {found[0][0].split()[-1]},"
            f" {figure(max(sizes), 2)} in {found[int(np.argmax(sizes))][0].split()[-1]}",
        ),
        weight=0.7,
    )


def _not_zeroed(facts: Facts) -> Iterator[Sign]:
    """Each step adds to the gradients of the step before."""
    if any(row["wrappers"] for row in facts.live("models")):
        return  # kept in buckets, which others change
    rows = [row for row in sampled(facts) if row["has_older"] is not None]
    found = _by_parameter(rows)
    older = [
        name for name, own in found.items() if 2 * sum(row["has_older"] for row in own) >= len(own)
    ]
    left = [name for name, own in found.items() if _times_left(own) >= _LEFT_TIMES]
    if older:
        last = max(row["step"] for row in rows)
        yield Sign(
            certainty="likely",
            summary=f"{_whose(older, found)} are not set to zero in each step: it adds to those of"
            " steps before",
            evidence=(
                f"what the optimizer used of {older[0]} is in its gradient of the step after, as"
                f" seen until step {last}; so it is with {len(older)} of {len(found)} gradients",
            ),
            weight=0.8,
        )
    elif left:
        yield _left_over(left, found)


def _left_over(left: Sequence[str], found: Mapping[str, Sequence[Row]]) -> Sign:
    """Gradients are added to those that the pass for another optimizer has left."""
    seen = [row for row in found[left[0]] if row["left_by"]]
    by = seen[-1]["left_by"]
    return Sign(
        certainty="likely",
        summary=f"{_whose(left, found)} are not set to zero before their own backward pass: it adds"
        f" to those that the pass for {by} leaves there",
        evidence=(
            f"{by} had stepped with a pass that is in the gradient of {left[0]}, too, as seen until"
            f" step {seen[-1]['step']}; so it is with {len(left)} of {len(found)} gradients",
        ),
        weight=0.8,
        fix=_OWN_ZERO,
    )


def _times_left(rows: Sequence[Row]) -> int:
    """In how many rows of a gradient something is that another optimizer's pass has left."""
    return sum(row["left_by"] is not None for row in rows)


def _whose(older: Sequence[str], found: Mapping[str, Any]) -> str:
    """Some of the gradients that were found: by their models where all of these are among them."""
    if len(older) == len(found):
        return "Gradients"
    others = {name.split()[0] for name in found.keys() - set(older)}
    models = sorted({name.split()[0] for name in older} - others)
    named = models if all(name.split()[0] in models for name in older) else older
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"The gradients of {', '.join(named[:MOST_NAMED])}{more}"


def listed(names: Sequence[str]) -> str:
    """The first few names."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


RULES = (
    Rule(
        name="zero-gradients",
        group="numbers",
        subject="gradients",
        symptom="A layer does not learn; the prediction hardly depends on the input.",
        evidence=f"`gradients` over {_SAMPLED} steps: the norm of each parameter of a module is"
        " exactly 0 in each. Only possible of members of a ModuleList, others of which have"
        " some: experts that a router may choose later.",
        certainty="likely",
        gravity=65,
        fix="Lower the rate, scale the inputs (pixels to 0..1), or use LeakyReLU or GELU.",
        next="probing ENDPOINT gradients",
        look=_dead,
        cost_s=SAMPLING_S,
    ),
    Rule(
        name="vanishing-gradients",
        group="numbers",
        subject="gradients",
        symptom="The first layers do not learn.",
        evidence=f"`gradients` over {_SAMPLED} steps: a quarter of the weights, from the first on,"
        " get less than a ten-millionth of the largest root mean square.",
        certainty="likely",
        gravity=63,
        fix="Use residual connections, normalization, or ReLU-like activations.",
        source="http://proceedings.mlr.press/v9/glorot10a.html",
        next="probing ENDPOINT gradients",
        look=_vanishing,
        cost_s=SAMPLING_S,
    ),
    Rule(
        name="not-zeroed",
        group="numbers",
        subject="gradients",
        symptom="The loss swings and the training gets unstable.",
        evidence=(
            "`has_older` of python.gradients over 3 steps: in half of them or more the gradient"
            " that the optimizer uses is the one of the step before, changed by a backward pass"
            " alone. Or `left_by`, twice: it still has what the pass of another optimizer left in"
            " it, as a generator's in its critic. Not looked at under DistributedDataParallel and"
            " FSDP."
        ),
        certainty="likely",
        gravity=74,
        fix="Call optimizer.zero_grad() once in each step.",
        source="https://pytorch.org/docs/stable/optim.html",
        next="probing ENDPOINT gradients --steps 3",
        look=_not_zeroed,
        cost_s=SAMPLING_S,
    ),
)
