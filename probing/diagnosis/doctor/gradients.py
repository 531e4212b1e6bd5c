"""Rules about gradients and what they train: parameters, optimizers, modes.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. What a
parameter is trained by is counted, not guessed from one gradient: an optimizer's state and torch's
count of changes tell of all steps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arming import sample_gradients
from .facts import Facts
from .findings import NotLookedAt, Rule, Sign
from .losses import _LOSS_QUERY

Row = dict[str, Any]

_GRADIENTS = (
    "SELECT step, model, parameter, norm, numel FROM python.gradients"
    " WHERE step BETWEEN {first} AND {last} ORDER BY seq"
)
_MANY_STEPS = 40
_NEVER = 8
"""Parameters are changed in place so many times while they are made."""
_SAMPLED = 3
_KEPT = 20
_KEPT_STEPS = 20
_ROUNDING = 0.35
_LONGEST_STEP_S = 4.0
_VANISHED = 1e-7
_VANISHING_PART = 0.25
_NO_STEPS = 64
_MOST_NUMBERS = 20_000_000
_MOST_NAMED = 3
_WITH_MODES = ("BatchNorm", "Dropout", "InstanceNorm")


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
        return
    total = sum(row["numel"] or 0 for row in found)
    yield Sign(
        certainty="likely",
        summary=f"{len(found)} parameters get gradients and are in no optimizer, so that they never"
        f" change: {_names(found)}",
        evidence=(f"{total:,} numbers; they were changed {_versions(found)} times",),
        weight=0.7,
    )


def _two_optimizers(facts: Facts) -> Iterator[Sign]:
    """Parameters are in more than one optimizer."""
    found = [row for row in facts.live("parameters") if row["optimizers"] > 1 and row["trainable"]]
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


def _frozen_state(facts: Facts) -> Iterator[Sign]:
    """An optimizer keeps state for parameters that are frozen."""
    found = [
        row
        for row in facts.live("parameters")
        if not row["trainable"] and row["has_state"] and (row["state_bytes"] or 0) >= 1 << 20
    ]
    if not found:
        return
    total = sum(row["state_bytes"] for row in found)
    yield Sign(
        certainty="certain",
        summary=f"The optimizer keeps {total / 2**20:.1f} MiB for {len(found)} parameters that are"
        f" frozen: {_names(found)}",
        evidence=("they require no gradient, and state is kept for them",),
        weight=0.3,
    )


def _sampled(facts: Facts) -> list[Row]:
    """The gradients of the next few steps.

    Raises:
        NotLookedAt: Steps take too long, or nothing trains.
    """
    now = facts.now()
    if now.median_s > _LONGEST_STEP_S:
        raise NotLookedAt(f"a step takes {now.median_s:.1f} s: `gradients` looks at them")
    limit_s = max(5.0, 5 * now.median_s)

    def ask() -> list[Row]:
        watch = sample_gradients(facts.process, _SAMPLED, timeout_s=limit_s)
        if watch.armed.state == "failed":
            raise NotLookedAt(str(watch.armed.reason))
        first, last = watch.armed.first_step or 0, watch.armed.last_step or 0
        return facts.process.query(_GRADIENTS.format(first=first, last=last)).to_pylist()

    return facts.ask("gradients", ask)


def _by_parameter(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['model']} {row['parameter']}", []).append(row)
    return found


def _dead(facts: Facts) -> Iterator[Sign]:
    """All gradients of a module are exactly zero."""
    rows = _sampled(facts)
    steps = {row["step"] for row in rows}
    if len(steps) < _SAMPLED:
        return
    modules: dict[str, list[Row]] = {}
    for row in rows:
        modules.setdefault(row["parameter"].rpartition(".")[0], []).append(row)
    dead = [
        name
        for name, own in modules.items()
        if all(row["norm"] == 0 for row in own) and {row["step"] for row in own} == steps
    ]
    if not dead or len(dead) == len(modules):
        if modules and len(dead) == len(modules):
            yield Sign(
                certainty="likely",
                summary=f"All gradients of all {len(modules)} modules are exactly zero",
                weight=1.0,
                evidence=(f"in each of the steps {min(steps)} to {max(steps)}",),
            )
        return
    yield Sign(
        certainty="likely",
        summary=f"The gradients of {_list(dead)} are exactly zero in each of {len(steps)} steps:"
        " what is behind it lets none through, as a ReLU whose inputs are all negative",
        evidence=(f"steps {min(steps)} to {max(steps)}; {len(modules) - len(dead)} other modules"
                  " have gradients",),
        weight=0.6,
    )  # fmt: skip


def _vanishing(facts: Facts) -> Iterator[Sign]:
    """The gradients of the first layers are next to nothing beside those of the last."""
    found = [(name, own) for name, own in _by_parameter(_sampled(facts)).items()
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
        f" {sizes[0] / max(sizes):.1g} of the largest, and {first} of {len(sizes)} layers get"
        " practically none",
        evidence=(
            f"root mean square {sizes[0]:.2g} in {found[0][0].split()[-1]},"
            f" {max(sizes):.2g} in {found[int(np.argmax(sizes))][0].split()[-1]}",
        ),
        weight=0.7,
    )


def _not_zeroed(facts: Facts) -> Iterator[Sign]:
    """Each step adds to the gradients of the step before."""
    now = facts.now()
    first = [row for row in facts.live("parameters") if (row["gradient_version"] or 0) >= _KEPT]
    if not first or any(row["wrappers"] for row in facts.live("models")):
        return  # made anew in each step; or kept in buckets, which others change
    before = _counted(facts)
    if now.median_s * 1.5 * _KEPT_STEPS > _LONGEST_STEP_S:
        raise NotLookedAt(f"{_KEPT_STEPS} steps take more than {_LONGEST_STEP_S:.0f} s")
    time.sleep(max(1.0, 1.5 * _KEPT_STEPS * now.median_s))
    after = facts.ask("parameters again", lambda: _counted(facts))
    steps = after.step - before.step
    rises = [
        after.versions[name] - n for name, n in before.versions.items() if name in after.versions
    ]
    if steps < _KEPT_STEPS or not rises:
        return
    last = now.rows[-1]
    own = (last["micro_batches"] or 1) + sum(
        last[name] is not None for name in ("clipped_norm", "amp_scale")
    )
    each = float(np.median(rises)) / steps
    if abs(each - own) > _ROUNDING or each < 1 - _ROUNDING:
        return
    yield Sign(
        certainty="likely",
        summary="Gradients are never set to zero: each step adds to those of all steps before",
        evidence=(
            f"in {steps} steps each gradient was changed {each:.1f} times a step: by backward"
            " passes, clipping and unscaling alone",
            f"they were changed in place {max(after.versions.values()):,} times since they were"
            " made",
        ),
        weight=0.8,
    )


class _Counted(NamedTuple):
    """How often the gradients were changed until a step."""

    step: int
    versions: dict[str, int]


def _counted(facts: Facts) -> _Counted:
    rows = facts.process.live("parameters").dicts()
    step = facts.process.query("SELECT max(step) AS step FROM python.steps").to_pylist()[0]["step"]
    versions = {
        f"{row['model']} {row['parameter']}": row["gradient_version"]
        for row in rows
        if (row["gradient_version"] or 0) >= _KEPT
    }
    return _Counted(step or 0, versions)


def _reseeded(facts: Facts) -> Iterator[Sign]:
    """The random generator is in the same state after each step, though dropout draws from it."""
    now = facts.now()
    rows = facts.live("parameters")
    numbers = sum(row["numel"] or 0 for row in rows)
    trained = _trained(facts)
    drawing = sorted(
        {
            row["class"]
            for row in facts.live("modules")
            if row["model"] in trained and row["training"] and row["dropout"]
        }
    )
    if not drawing:
        return
    if numbers > _MOST_NUMBERS or now.median_s > _LONGEST_STEP_S:
        raise NotLookedAt("the model is too large to be looked at twice beside the training")
    limit_s = max(3.0, 4 * now.median_s)

    def look() -> tuple[int | None, dict[str, str]]:
        made = facts.process.live("parameter_checksums", wait_s=limit_s).dicts()
        states = {r["parameter"]: r["checksum"] for r in made if r["kind"] == "random"}
        return next((r["step"] for r in made), None), states

    first = facts.ask("random states", look)
    second = facts.ask("random states again", look)
    same = [
        name
        for name in first[1]
        if name.startswith("torch") and first[1][name] == second[1].get(name)
    ]
    if first[0] is None or first[0] == second[0] or not same:
        return
    yield Sign(
        certainty="likely",
        summary=f"The random generator is in the same state after step {first[0]} and step"
        f" {second[0]}, though {_list(drawing)} draws from it: it is seeded anew in each step, and"
        " all steps have the same dropout and noise",
        evidence=(f"the state of {same[0]}: {first[1][same[0]]} twice",),
        weight=0.6,
    )


def _never_steps(facts: Facts) -> Iterator[Sign]:
    """Backward passes are made, and no optimizer steps."""
    if len(facts.steps):  # also steps that a script makes by hand end
        return
    rows = facts.rows(
        "SELECT count(*) AS number, min(start_ns) AS begin FROM python.micro_batches"
        " WHERE backward_s IS NOT NULL"
    )
    number = rows[0]["number"]
    if number < _NO_STEPS:
        return
    scaled = facts.steps.open and facts.steps.open["amp_scale"]
    yield Sign(
        certainty="likely",
        summary=f"{number} backward passes have been made, and no optimizer has stepped: nothing is"
        " learned",
        since_step=0,
        evidence=(
            "no step of an optimizer is on record",
            *(("a scaler is in use",) if scaled else ()),
        ),
        weight=1.0,
    )


def _exploding(facts: Facts) -> Iterator[Sign]:
    """The gradients are far larger than they were."""
    steps = facts.steps.settled()
    norms = steps.column("grad_norm")
    known = np.flatnonzero(np.isfinite(norms))
    if len(known) < 40:
        return
    usual, now = (float(np.median(norms[part])) for part in (known[:-10], known[-10:]))
    if usual <= 0 or now < 100 * usual:
        return
    yield Sign(
        certainty="likely",
        summary=f"The gradients explode: their norm is {now:.3g} now, and was {usual:.3g}",
        since_step=steps.numbers[int(known[-10])],
        weight=0.8,
        evidence=(f"the median of the last 10 steps beside that of {len(known) - 10} before",),
    )


def _modes(facts: Facts) -> list[Row]:
    """How often each root was called in which mode, with and without a step around it."""
    return facts.rows(
        "SELECT model, root, training, min(step) AS first, max(step) AS last, count(*) AS calls"
        " FROM python.torch_trace t WHERE depth = 0 AND stage = 'forward' AND NOT EXISTS (FROM"
        " python.evaluations e WHERE t.start_ns BETWEEN e.start_ns AND e.start_ns +"
        " coalesce(e.duration_ns, 9e18::BIGINT)) GROUP BY ALL"
    )


def _with_modes(facts: Facts, model: str) -> list[str]:
    """Classes in a model that compute something else in the other mode."""
    rows = [row for row in facts.live("modules") if row["model"] == model]
    names = {row["class"] for row in rows if any(word in row["class"] for word in _WITH_MODES)}
    return sorted(names)


def _trained(facts: Facts) -> set[str]:
    return {row["model"] for row in facts.live("parameters") if row["optimizers"] and row["model"]}


def _evaluation_mode(facts: Facts) -> Iterator[Sign]:
    """A model is trained in evaluation mode."""
    rows = _modes(facts)
    for model in sorted(_trained(facts)):
        own = [row for row in rows if row["model"] == model]
        off = [row for row in own if row["training"] is False]
        on = [row for row in own if row["training"]]
        classes = _with_modes(facts, model) if off else []
        newest = facts.steps.numbers[-1] if len(facts.steps) else 0
        if not classes or off[0]["last"] < newest - 2 or off[0]["calls"] < 10:
            continue
        since = on[0]["last"] + 1 if on else None
        stays = not on or on[0]["last"] < newest - 10
        if not stays:
            continue
        yield Sign(
            certainty="likely" if on else "possible",
            summary=f"{model} is trained in evaluation mode"
            + (f" since step {since}" if since is not None else "")
            + f": {_list(classes)} behave as in evaluation",
            since_step=since,
            evidence=(f"{off[0]['calls']} calls in evaluation mode in steps {off[0]['first']} to"
                      f" {off[0]['last']}",),
            weight=0.7,
        )  # fmt: skip


def _training_mode(facts: Facts) -> Iterator[Sign]:
    """A model is evaluated in training mode."""
    rows = facts.rows(
        "SELECT t.model, count(*) AS calls, min(e.step) AS step FROM python.torch_trace t JOIN"
        " python.evaluations e ON t.start_ns BETWEEN e.start_ns AND e.start_ns + e.duration_ns"
        " WHERE t.depth = 0 AND t.stage = 'forward' AND t.training GROUP BY ALL"
    )
    for row in rows:
        if row["calls"] < 5 or row["model"] not in _trained(facts):
            continue
        classes = _with_modes(facts, row["model"])
        if not classes:
            continue
        norm = any("Norm" in name for name in classes)
        yield Sign(
            certainty="likely" if norm else "possible",
            summary=f"{row['model']} is in training mode while it is evaluated: {_list(classes)}"
            " behave as in training"
            + (", and learn the statistics of the evaluation's data" if norm else ""),
            since_step=row["step"],
            evidence=(f"{row['calls']} calls in evaluations, all in training mode",),
            weight=0.6,
        )


def _names(rows: Sequence[Row]) -> str:
    return _list([row["parameter"] for row in rows])


def _list(names: Sequence[str]) -> str:
    """The first few names."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _versions(rows: Sequence[Row]) -> str:
    known = [row["version"] for row in rows if row["version"] is not None]
    return f"{min(known)} to {max(known)}" if known else "an unknown number of"


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
        " which an optimizer trains other parts. A frozen or averaged copy has no gradients.",
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
        " many of the others; an optimizer that keeps state keeps none for them.",
        certainty="likely",
        gravity=68,
        fix="Look for a detach(), a no_grad, an argmax or a call of .item() or .numpy() between"
        " them and the loss; freeze what is not to be trained.",
        next=_PARAMETERS,
        look=_never_trained,
    ),
    Rule(
        name="frozen-state",
        group="memory",
        subject="memory",
        symptom="Freezing a part of the model has freed no memory.",
        evidence="python.parameters: no gradient is required, and 1 MiB or more of state is kept.",
        certainty="certain",
        gravity=44,
        fix="Make the optimizer anew after freezing, or delete optimizer.state[parameter].",
        next="probing ENDPOINT memory",
        look=_frozen_state,
    ),
    Rule(
        name="zero-gradients",
        group="numbers",
        subject="gradients",
        symptom="A layer does not learn; the prediction hardly depends on the input.",
        evidence=f"`gradients` over {_SAMPLED} steps: the norm of each parameter of a module is"
        " exactly 0 in each.",
        certainty="likely",
        gravity=65,
        fix="Lower the rate, scale the inputs (pixels to 0..1), or use LeakyReLU or GELU.",
        next="probing ENDPOINT gradients",
        look=_dead,
        is_slow=True,
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
        is_slow=True,
    ),
    Rule(
        name="not-zeroed",
        group="numbers",
        subject="gradients",
        symptom="The loss swings and the training gets unstable.",
        evidence="`gradient_version` of python.parameters, twice: gradients that stay from step to"
        " step, and are changed by backward passes, unscaling and clipping alone. Not looked at"
        " under DistributedDataParallel and FSDP.",
        certainty="likely",
        gravity=74,
        fix="Call optimizer.zero_grad() once in each step.",
        source="https://pytorch.org/docs/stable/optim.html",
        next="probing ENDPOINT gradients --steps 3",
        look=_not_zeroed,
        is_slow=True,
    ),
    Rule(
        name="reseeded",
        group="numbers",
        subject="random numbers",
        symptom="Dropout and noise are the same in all steps; the model learns one mask.",
        evidence="Checksums of torch's random state at the ends of two steps, of models of up to 20"
        " million numbers with dropout in training mode.",
        certainty="likely",
        gravity=57,
        fix="Seed once before the loop: torch.manual_seed(...) is not to be called in a step.",
        source="https://pytorch.org/docs/stable/notes/randomness.html",
        next='probing ENDPOINT query "SELECT step, parameter, checksum FROM'
        " python.parameter_checksums WHERE kind = 'random'\"",
        look=_reseeded,
        is_slow=True,
    ),
    Rule(
        name="never-steps",
        group="numbers",
        subject="optimizer",
        symptom="The loss does not fall at all.",
        evidence=f"python.micro_batches: {_NO_STEPS} backward passes, and no step of an optimizer"
        " on record. Accumulation over that many is rare.",
        certainty="likely",
        gravity=78,
        fix="Look at the condition under which optimizer.step() is called.",
        next='probing ENDPOINT query "SELECT count(*) FROM python.micro_batches"',
        look=_never_steps,
    ),
    Rule(
        name="exploding-gradients",
        group="numbers",
        subject="gradients",
        symptom="The norm of the gradients is far larger than it was.",
        evidence="`grad_norm` of python.steps: the last ten are 100 times what it was.",
        certainty="likely",
        gravity=73,
        fix="Clip the gradients: clip_grad_norm_(..., 1.0), or lower the learning rate.",
        next=_LOSS_QUERY,
        look=_exploding,
    ),
    Rule(
        name="evaluation-mode",
        group="numbers",
        subject="modes",
        symptom="Dropout is off and batch norm frozen while the model is trained.",
        evidence="`training` of python.torch_trace in calls outside of evaluations, for models with"
        " dropout or batch norm; likely where it was on before, else it may be meant.",
        certainty="likely",
        gravity=67,
        fix="Call model.train() after each evaluation.",
        source="https://pytorch.org/docs/stable/notes/autograd.html",
        next='probing ENDPOINT query "SELECT model, training, max(step) FROM python.torch_trace'
        ' WHERE depth = 0 GROUP BY ALL"',
        look=_evaluation_mode,
    ),
    Rule(
        name="training-mode",
        group="numbers",
        subject="modes",
        symptom="Evaluations are worse than they should be, and differ from run to run.",
        evidence="`training` of python.torch_trace within python.evaluations, for models that an"
        " optimizer trains; likely with batch norm, which then learns from the evaluation's data.",
        certainty="likely",
        gravity=61,
        fix="Call model.eval() before an evaluation, and model.train() after it.",
        next='probing ENDPOINT query "SELECT * FROM python.evaluations ORDER BY step DESC LIMIT 5"',
        look=_training_mode,
    ),
)
