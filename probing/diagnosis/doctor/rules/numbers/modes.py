"""Rules about modes and random numbers: what a model computes otherwise than it should."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from ...facts import Facts
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from .gradients import BEHIND_SAMPLES_S, LONGEST_STEP_S, MOST_NAMED, Row, listed

_CALLED = (
    "SELECT model, root, training, min(step) AS first, max(step) AS last, count(*) AS calls"
    " FROM python.torch_trace t WHERE depth = 0 AND stage = 'forward' AND NOT EXISTS (FROM"
    " python.evaluations e WHERE t.start_ns BETWEEN e.start_ns AND e.start_ns +"
    " coalesce(e.duration_ns, 9e18::BIGINT)) GROUP BY ALL"
)
_EVALUATED = (
    "SELECT t.model, t.root, count(*) FILTER (t.training) AS calls, count(*) AS all_calls,"
    " min(e.step) FILTER (t.training) AS step FROM python.torch_trace t JOIN"
    " python.evaluations e ON t.start_ns BETWEEN e.start_ns AND e.start_ns + e.duration_ns"
    " WHERE t.depth = 0 AND t.stage = 'forward' GROUP BY ALL"
)
_FIRST_CALLS = 0.25
"""The first call of an evaluation is not yet known for one: so few may be outside of them."""
_FED_BY = (
    "WITH fed AS (SELECT loader, start_ns, EXISTS (FROM python.evaluations e WHERE b.start_ns"
    " BETWEEN e.start_ns AND e.start_ns + e.duration_ns) AS inside FROM python.batches b"
    " WHERE duration IS NOT NULL AND exhausted IS NOT TRUE), trained AS (SELECT loader FROM fed"
    " WHERE NOT inside GROUP BY loader"
    " HAVING count(*) > 0.25 * (SELECT count(*) FROM fed WHERE NOT inside)),"
    " called AS (SELECT t.model, t.start_ns, e.start_ns AS begin FROM python.torch_trace t JOIN"
    " python.evaluations e ON t.start_ns BETWEEN e.start_ns AND e.start_ns + e.duration_ns"
    " WHERE t.depth = 0 AND t.stage = 'forward' AND t.training),"
    " given AS (SELECT model, CASE WHEN f.start_ns >= begin THEN loader END AS loader"
    " FROM called c ASOF LEFT JOIN fed f ON c.start_ns >= f.start_ns)"
    " SELECT model, count(*) FILTER (loader IN (SELECT loader FROM trained)) AS own,"
    " count(*) FILTER (loader NOT IN (SELECT loader FROM trained)) AS others FROM given"
    " GROUP BY model"
)
"""By model: its calls in training mode in evaluations, with batches of a loader that is trained on,
or of another one."""
_ON_DEVICE = "torch device"
_WATCH_S, _MOST_LOOKS = 1.5, 32
"""So long, and so often, are random states looked at."""
_MOST_PARTS = 3
"""More frozen parts are the blocks of a model that adapters are trained in."""
_FROZEN = "Frozen"  # of torchvision, and of those that have copied it
_AS_MEANT = "as update_bn of torch.optim.swa_utils and PreciseBN do"
_WITH_MODES = ("BatchNorm", "Dropout", "InstanceNorm")


def _reseeded(facts: Facts) -> Iterator[Sign]:
    """A random generator comes back to a state in which it was, and something draws from it."""
    now = facts.now()
    if now.median_s > LONGEST_STEP_S:
        raise NotLookedAt(f"a step takes {now.median_s:.1f} s, and the ends of two are needed")
    trained = _trained(facts)
    drawing = _drawing([row for row in facts.live("modules") if row["model"] in trained])
    looks = facts.ask("random states", lambda: _states(facts, max(3.0, 4 * now.median_s)))
    names = {name for states in looks.values() for name in states}
    # On a device dropout draws from its generator, and none of the script's may use the other.
    drawn_from = _ON_DEVICE if _ON_DEVICE in names else "torch"
    for name in sorted(names, key=lambda one: one != drawn_from):
        steps = {step: states[name] for step, states in looks.items() if states.get(name)}
        words = _comes_back(name, steps) or (
            _stays(steps, drawing) if drawing and name == drawn_from else ""
        )
        if words:
            yield Sign(
                certainty="likely",
                summary=words,
                evidence=(
                    f"the state of {name} was looked at after {len(steps)} steps:"
                    f" {len(set(steps.values()))} different ones",
                ),
                weight=0.6,
            )
            return


def _drawing(rows: Sequence[Row]) -> list[str]:
    """Classes of dropouts that leave something out, of those that the last forward has called."""
    return sorted({row["class"] for row in _called(rows) if row["training"] and row["dropout"]})


def _called(rows: Sequence[Row]) -> Sequence[Row]:
    """The modules that the last forward has called; all where none was observed."""
    return [row for row in rows if row.get("observed_step") is not None] or rows


def _states(facts: Facts, limit_s: float) -> dict[int, dict[str, str]]:
    """The states of random generators at the ends of as many steps as a short look sees."""
    looks: dict[int, dict[str, str]] = {}
    until = time.monotonic() + _WATCH_S
    while len(looks) < _MOST_LOOKS and (len(looks) < 2 or time.monotonic() < until):
        seen = facts.process.live("parameter_checksums", wait_s=limit_s, only_random=True)
        made = [row for row in seen.dicts() if row["kind"] == "random"]
        step = next((row["step"] for row in made), None)
        if step is None or step in looks:
            break  # the training does not go on
        looks[step] = {row["parameter"]: row["checksum"] for row in made}
    return looks


def _stays(steps: Mapping[int, str], drawing: Sequence[str]) -> str:
    """That all steps end in one state, though something draws from it; empty where they do not."""
    if len(steps) < 2 or len(set(steps.values())) > 1:
        return ""
    first, *_, second = steps
    return (
        f"The random generator is in the same state after step {first} and step {second}, though"
        f" {listed(drawing)} draws from it: it is seeded anew in each step, and all steps have the"
        " same dropout and noise"
    )


def _comes_back(name: str, steps: Mapping[int, str]) -> str:
    """That a generator comes back to a state after others; empty where it does not."""
    last: dict[str, int] = {}
    found: list[tuple[int, int]] = []
    before = ""
    for step, state in steps.items():
        if state in last and state != before:
            found.append((last[state], step))
        last[state], before = step, state
    if not found:
        return ""
    first, second = min(found, key=lambda pair: pair[1] - pair[0])
    return (
        f"The {name} random generator is after step {second} in the state in which it was after"
        f" step {first}, and was in others in between: it is seeded anew again and again, and the"
        f" same numbers are drawn every {second - first} steps"
    )


def _bad_statistics(facts: Facts) -> Iterator[Sign]:
    """Batch norms have counted values that are not finite."""
    found = [row for row in facts.live("modules") if row.get("bad_statistics")]
    if not found:
        return
    names = listed([f"{row['module']} ({row['class']})" for row in found])
    models = listed(sorted({row["model"] for row in found}))
    yield Sign(
        certainty="certain",
        summary=f"The running statistics of {names} in {models} are not finite: whatever {models}"
        " computes in evaluation mode is not either, though the training goes on without them",
        evidence=tuple(
            f"{row['bad_statistics']:,} numbers of running_mean and running_var of {row['module']}"
            " are NaN or infinite"
            for row in found[:MOST_NAMED]
        ),
        weight=0.9,
    )


def _modes(facts: Facts) -> list[Row]:
    """How often each root was called in which mode, with and without a step around it."""
    return facts.rows(_CALLED)


def _with_modes(facts: Facts, model: str, *, training: bool) -> list[str]:
    """Classes in a model that are in a mode, and compute something else in the other one."""
    rows = [row for row in facts.live("modules") if row["model"] == model]
    return sorted(
        {
            row["class"]
            for row in rows
            if any(word in row["class"] for word in _WITH_MODES)
            if _FROZEN not in row["class"] and row.get("training") is not (not training)
        }
    )


def _behave(classes: Sequence[str]) -> str:
    """Who behaves so."""
    return f"{listed(classes)} {'behaves' if len(classes) == 1 else 'behave'}"


def _trained(facts: Facts) -> set[str]:
    return {row["model"] for row in facts.live("parameters") if row["optimizers"] and row["model"]}


def _evaluation_mode(facts: Facts) -> Iterator[Sign]:
    """A model is trained in evaluation mode."""
    rows = _modes(facts)
    for model in sorted(_trained(facts)):
        own = [row for row in rows if row["model"] == model]
        off = [row for row in own if row["training"] is False]
        on = [row for row in own if row["training"]]
        classes = _with_modes(facts, model, training=False) if off else []
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
            + f": {_behave(classes)} as in evaluation",
            since_step=since,
            evidence=(f"{off[0]['calls']} calls in evaluation mode in steps {off[0]['first']} to"
                      f" {off[0]['last']}",),
            weight=0.7,
        )  # fmt: skip


def _training_mode(facts: Facts) -> Iterator[Sign]:
    """A model is evaluated in training mode."""
    rows = facts.rows(_EVALUATED)
    for row in rows:
        if row["calls"] < 5:
            continue
        is_copy = row["model"] not in _trained(facts)
        if is_copy and not _is_copy(facts, row):
            continue
        classes = _with_modes(facts, row["model"], training=True)
        if not classes:
            continue
        norm = any("BatchNorm" in name for name in classes)
        is_own = norm and not is_copy and _is_given_own(facts, row)
        data = "the training's own data" if is_own else "the evaluation's data"
        learns = f", and learn{'s' * (len(classes) == 1)} the statistics of {data}" if norm else ""
        yield Sign(
            certainty="likely" if norm and not (is_copy or is_own) else "possible",
            summary=f"{row['model']} is in training mode while it is evaluated:"
            f" {_behave(classes)} as in training{learns}",
            since_step=row["step"],
            evidence=(
                f"{row['calls']} calls of {row['all_calls']} in evaluations are in training mode",
                *(("no optimizer trains it: it is a copy of one that is trained",) * is_copy),
                *((f"their batches are of the loader that is trained on, {_AS_MEANT}",) * is_own),
            ),
            weight=0.6,
            fix="Nothing, if that makes the statistics anew." if is_own else "",
        )


def _is_given_own(facts: Facts, evaluated: Row) -> bool:
    """Whether a model is given batches of the training's loader in evaluations in training mode."""
    rows = [row for row in facts.rows(_FED_BY) if row["model"] == evaluated["model"]]
    own, others = (sum(row[name] for row in rows) for name in ("own", "others"))
    return own >= (1 - _FIRST_CALLS) * evaluated["calls"] and not others


def _frozen_parts(facts: Facts) -> Iterator[Sign]:
    """Parts of a trained model that do not learn are in training mode all the same."""
    for model in sorted(_trained(facts)):
        rows = [row for row in facts.live("modules") if row["model"] == model]
        found = _noisy_parts(rows)
        if not found:
            continue
        tops, kinds = sorted(found), sorted({kind for each in found.values() for kind in each})
        yield Sign(
            certainty="possible",
            summary=f"{listed(tops)} of {model} {'is' if len(tops) == 1 else 'are'} frozen and in"
            f" training mode: {listed(kinds)} inside behave as in training",
            evidence=("no parameter of it is trainable, as of a teacher or a pretrained part",),
            weight=0.4,
        )
        return


def _noisy_parts(rows: Sequence[Row]) -> dict[str, set[str]]:
    """The largest frozen parts, with the classes inside whose results change in training mode.

    Frozen parts amid trainable ones, as the blocks that adapters are put into, are left out.
    """
    called = _called(rows)
    noisy = [
        row
        for row in called
        if row["training"]
        if row["dropout"] or ("BatchNorm" in row["class"] and _FROZEN not in row["class"])
    ]
    frozen = {
        row["module"]
        for row in called
        if row["module"] and row["parameters"] and not row["trainable"]
    }
    found: dict[str, set[str]] = {}
    for row in noisy:
        names = row["module"].split(".")
        around = [".".join(names[:depth]) for depth in range(1, len(names))]
        if top := next((one for one in around if one in frozen), ""):
            found.setdefault(top, set()).add(row["class"])
    return found if len(found) <= _MOST_PARTS else {}


def _is_copy(facts: Facts, evaluated: Row) -> bool:
    """Whether what is evaluated is a model like a trained one, and always in training mode.

    Averages of weights are. The statistics of their batch norm may be made in training mode by a
    pass over the data, after which they are in evaluation mode.
    """
    if evaluated["calls"] < evaluated["all_calls"]:
        return False
    trained = _trained(facts)
    calls = _modes(facts)
    classes = {row["root"] for row in calls if row["model"] in trained}
    outside = sum(row["calls"] for row in calls if row["model"] == evaluated["model"])
    is_called = outside > _FIRST_CALLS * evaluated["all_calls"]
    return evaluated["root"] in classes and not is_called


RULES = (
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
        asks=(_CALLED,),
        look=_evaluation_mode,
    ),
    Rule(
        name="training-mode",
        group="numbers",
        subject="modes",
        symptom="Evaluations are worse than they should be, and differ from run to run.",
        evidence=(
            "`training` of python.torch_trace within python.evaluations, for models that an"
            " optimizer trains; likely with batch norm, which then learns from the evaluation's"
            " data. Only possible where it is given batches of the training, as by update_bn, or is"
            " a copy that is called in evaluations only."
        ),
        certainty="likely",
        gravity=61,
        fix="Call model.eval() before an evaluation, and model.train() after it.",
        next='probing ENDPOINT query "SELECT * FROM python.evaluations ORDER BY step DESC LIMIT 5"',
        asks=(_EVALUATED, _CALLED),
        look=_training_mode,
    ),
    Rule(
        name="frozen-in-training",
        group="numbers",
        subject="modes",
        symptom="What a frozen part computes differs from call to call, or drifts.",
        evidence="python.modules: a part of a trained model that was called, has parameters, none"
        " of them trainable, and in it dropout or batch norm in training mode. It may be meant.",
        certainty="possible",
        gravity=34,
        fix="Call .eval() on that part after each model.train(), or in its train() method.",
        next='probing ENDPOINT query "SELECT module, class, training, trainable'
        ' FROM python.modules"',
        look=_frozen_parts,
    ),
    Rule(
        name="bad-statistics",
        group="numbers",
        subject="running statistics",
        symptom="Evaluations are NaN, and the loss of the training is finite.",
        evidence="`bad_statistics` of python.modules: NaN or infinite numbers in `running_mean` or"
        " `running_var`. Those on an accelerator are not read.",
        certainty="certain",
        gravity=66,
        fix="Reset them (module.reset_running_stats()), train on, and leave out batches that are"
        " not finite before they are given to the model: to skip the step afterwards is too late.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html",
        next='probing ENDPOINT query "SELECT model, module, bad_statistics FROM python.modules'
        ' WHERE bad_statistics > 0"',
        look=_bad_statistics,
        cost_s=BEHIND_SAMPLES_S,
    ),
    Rule(
        name="reseeded",
        group="numbers",
        subject="random numbers",
        symptom="Dropout, noise or batches are the same again and again; the model learns them by"
        " heart.",
        evidence="Checksums of the states of random generators at the ends of steps, for"
        f" {_WATCH_S} s: the same after each, of models with dropout in training mode, or the same"
        " as earlier with others in between. No parameter is read for it.",
        certainty="likely",
        gravity=57,
        fix="Seed once before the loop: torch.manual_seed(...) is not to be called in it. For what"
        " needs the same numbers each time, as a preview, give it a torch.Generator of its own, or"
        " put torch.random.fork_rng() around it.",
        source="https://pytorch.org/docs/stable/notes/randomness.html",
        next='probing ENDPOINT query "SELECT step, parameter, checksum FROM'
        " python.parameter_checksums WHERE kind = 'random'\"",
        look=_reseeded,
        cost_s=3.5,
    ),
)
