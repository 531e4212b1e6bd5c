"""Rules about a training loop that goes on though its steps fail.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. An exception
that a script swallows is not on record: only that a call ended by one, or that what should follow a
call never came. So nothing is said of a process without an optimizer, which need not train, or of
an evaluation.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from ..facts import Facts, Row
from ..findings import Rule, Sign
from ..not_looked_at import NotLookedAt
from .numbers.rates import TRAINED

_NEWEST = 64
_LEAST, _MOST_OF = 8, 0.5
_MANY = 64
_FAR_MORE = 8
_EPOCHS = 2
_NO_EVALUATION = (
    "NOT EXISTS (FROM python.evaluations e WHERE t.start_ns BETWEEN e.start_ns"
    " AND e.start_ns + coalesce(e.duration_ns, 9e18::BIGINT))"
)
_CALLS = (
    "SELECT stage, model, module, step, failed, EXISTS (FROM python.steps s WHERE s.step = t.step"  # noqa: S608 - our words
    " AND optimizer IS NOT NULL AND duration IS NOT NULL) AS is_made FROM python.torch_trace t"
    " WHERE failed IS NOT NULL AND NOT recomputed AND coalesce(training, true)"
    f" AND stage IN ('forward', 'backward', 'optimizer') AND {_NO_EVALUATION}"
    " QUALIFY depth = 0 AND row_number() OVER (PARTITION BY stage, depth = 0 ORDER BY seq DESC)"
    f" <= {_NEWEST}"
)
_INNERMOST = (
    "SELECT module, class, count(*) AS number FROM python.torch_trace WHERE failed"
    " AND stage = 'forward' AND depth = (SELECT max(depth) FROM python.torch_trace WHERE failed"
    " AND stage = 'forward') GROUP BY ALL ORDER BY number DESC LIMIT 1"
)
_STEPPED = "SELECT max(step) AS step FROM python.steps WHERE optimizer IS NOT NULL"
_SINCE = (
    "WITH last AS (SELECT coalesce(max(start_ns), 0) AS ns"  # noqa: S608 - our words
    " FROM python.torch_trace WHERE stage = 'backward'),"
    " used AS (SELECT max(start_ns) AS ns FROM (SELECT start_ns FROM python.torch_trace"
    " WHERE stage = 'forward' AND depth = 0 UNION ALL SELECT start_ns + duration * 1e9"
    " FROM python.steps WHERE optimizer IS NOT NULL))"
    " SELECT (SELECT ns FROM last) AS last_ns,"
    " (SELECT count(*) FROM python.torch_trace t WHERE stage = 'forward' AND depth = 0"
    " AND training AND NOT failed AND NOT recomputed AND start_ns > (SELECT ns FROM last)"
    f" AND {_NO_EVALUATION}) AS calls,"
    " (SELECT any_value(model) FROM python.torch_trace WHERE stage = 'forward' AND depth = 0"
    " AND training AND start_ns > (SELECT ns FROM last)) AS model,"
    " (SELECT count(*) FROM python.batches WHERE start_ns > (SELECT ns FROM last)"
    " AND NOT exhausted) AS batches,"
    " (SELECT count(*) FROM python.batches WHERE start_ns > (SELECT ns FROM last)"
    " AND exhausted) AS epochs,"
    " (SELECT count(*) FROM python.batches WHERE NOT exhausted"
    " AND start_ns > coalesce((SELECT ns FROM used), 0)) AS unused,"
    " (SELECT count(*) FROM python.batches WHERE exhausted"
    " AND start_ns > coalesce((SELECT ns FROM used), 0)) AS unused_epochs,"
    " (SELECT max(micro_batches) FROM python.steps) AS most,"
    " made.* FROM (SELECT count(*) AS made, min(step) AS since FROM python.steps"
    " WHERE optimizer IS NOT NULL AND duration IS NOT NULL"
    " AND start_ns > (SELECT ns FROM last)) AS made"
)
_LEAST_LOST = 2
_IN_PACKAGES = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+/")
_TASKS = (
    "SELECT function, file, count(*) FILTER (lost) AS lost, count(*) FILTER (NOT lost) AS asked,"
    " count(*) FILTER (duration IS NULL) AS kept, min(step) AS since, max_by(error, seq) AS error,"
    " max_by(line, seq) AS line FROM python.task_errors"
    " WHERE NOT regexp_matches(error, '^(Stop(Async)?Iteration|CancelledError)')"
    " GROUP BY function, file ORDER BY lost DESC, kept DESC"
)
"""Without what a task ends by that has nothing more to give, such as one that fetches ahead."""


def _failing_calls(facts: Facts) -> Iterator[Sign]:
    """Calls of the model, backward passes or steps of the optimizer fail one after the other."""
    rows = sorted(facts.rows(_CALLS), key=lambda row: row["step"])
    found = [
        own for own in _together(rows)
        if sum(row["failed"] for row in own) >= max(_LEAST, _MOST_OF * len(own))
    ]  # fmt: skip
    if not found:
        return
    _need_optimizer(facts)
    trained = _trained(facts)
    own = min(found, key=lambda own: _is_meant(own, trained))
    failed = [row for row in own if row["failed"]]
    stage, name = own[0]["stage"], failed[0]["model"] or failed[0]["module"]
    is_meant = _is_meant(own, trained)
    last = None if _are_made(failed) else _first(facts)
    inner = next(iter(facts.rows(_INNERMOST)), None) if stage == "forward" else None
    yield Sign(
        certainty="possible" if is_meant else "likely",
        summary=f"{_STAGES[stage].format(name)} end by an exception, {len(failed)} of the last"
        f" {len(own)}, and the script goes on: "
        + ("steps are made all the same" if last is None else _no_step(facts)),
        since_step=last if last is None or len(failed) == len(own) else failed[0]["step"],
        evidence=(
            f"`failed` of python.torch_trace: {len(failed)} of the last {len(own)} rows of"
            f" {stage}",
            *(
                (f"the innermost call that failed is that of {inner['module']}"
                 f" ({inner['class']})",)
                if inner and inner["module"] != name else ()
            ),
            *(("no optimizer trains it: a hook may leave it at the layer that is wanted",)
              if is_meant else ()),
        ),
        weight=1.0,
    )  # fmt: skip


def _together(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """What is judged together: all of a stage, as each trial of a search has a model of its own."""
    for stage in _STAGES:
        own = [row for row in rows if row["stage"] == stage]
        yield own
        for model in dict.fromkeys(row["model"] for row in own):
            yield [row for row in own if row["model"] == model]


def _are_made(failed: Sequence[Row]) -> bool:
    """Whether most of the steps were made in which these calls failed."""
    made = [row for row in failed if row["is_made"]]
    return 2 * len(made) > len(failed)


def _is_meant(calls: Sequence[Row], trained: set[str]) -> bool:
    """Whether calls may be left on purpose: the steps are made, and are of other models."""
    failed = [row for row in calls if row["failed"]]
    is_forward = failed[0]["stage"] == "forward"
    return is_forward and _are_made(failed) and trained.isdisjoint(r["model"] for r in failed)


def _trained(facts: Facts) -> set[str]:
    """The models whose parameters an optimizer trains; it may step those of a frozen one, too."""
    with contextlib.suppress(NotLookedAt):
        if rows := facts.live("parameters"):
            return {row["model"] for row in rows if row["trainable"] and row["optimizers"]}
    return {name for row in facts.rows(TRAINED) for name in (row["model"] or "").split(", ")}


_STAGES = {
    "forward": "Calls of {}",
    "backward": "Backward passes of {}",
    "optimizer": "Steps of {}",
}


def _no_backward(facts: Facts) -> Iterator[Sign]:
    """Batches are taken and the model is called, and no backward pass follows."""
    row = facts.rows(_SINCE)[0]
    usual = row["most"] or 1
    if row["calls"] < max(_MANY, _FAR_MORE * usual) or row["batches"] < row["calls"] / 2:
        return
    _need_optimizer(facts)
    never = not row["last_ns"] and _stepped(facts) is None
    is_sure = never or row["epochs"] >= _EPOCHS
    is_sure = is_sure and not (row["made"] and _may_have_gradients(facts))
    yield Sign(
        certainty="likely" if is_sure else "possible",
        summary=f"{row['batches']} batches have been taken and {row['model']} has been called"
        f" {row['calls']} times in training mode, and no backward pass has followed"
        + (f", though {row['made']} steps of an optimizer have been made since" if row["made"]
           else f": {_no_step(facts)}"),
        since_step=row["since"] if row["made"] else _first(facts),
        evidence=(
            "none of these calls failed, and they are no evaluation: gradients are on",
            *((f"{row['epochs']} epochs of a loader have ended meanwhile",) if row["epochs"]
              else ()),
        ),
        weight=1.0,
    )  # fmt: skip


def _may_have_gradients(facts: Facts) -> bool:
    """Whether what optimizers step has gradients, which the script must have put there itself.

    So it may be where they could not be read, as of a step that takes long.
    """
    try:
        own = [row["has_gradient"] for row in facts.live("parameters") if row["optimizers"]]
    except NotLookedAt:
        return True
    return any(one is not False for one in own)


def _unused_batches(facts: Facts) -> Iterator[Sign]:
    """Batches are taken, epoch by epoch, and no model is called."""
    row = facts.rows(_SINCE)[0]
    if row["unused"] < _MANY or row["unused_epochs"] < _EPOCHS:
        return
    _need_optimizer(facts)
    yield Sign(
        certainty="likely",
        summary=f"{row['unused']} batches have been taken, {row['unused_epochs']} epochs of them,"
        f" and no model has been called: {_no_step(facts)}",
        since_step=_first(facts),
        evidence=("python.batches has rows since, and python.torch_trace none",),
        weight=1.0,
    )


def _need_optimizer(facts: Facts) -> None:
    """Make sure that the process is to train.

    Raises:
        NotLookedAt: It has no optimizer, or that could not be seen.
    """
    if _stepped(facts) is None and not facts.live("optimizers"):
        raise NotLookedAt("there is no optimizer: it may be inference")


def _stepped(facts: Facts) -> int | None:
    """The last step that an optimizer of torch has made."""
    number: int | None = facts.rows(_STEPPED)[0]["step"]
    return number


def _first(facts: Facts) -> int:
    last = _stepped(facts)
    return 0 if last is None else last + 1


def _no_step(facts: Facts) -> str:
    """That no step is made, and since when."""
    last = _stepped(facts)
    if last is None:
        return "no step has been made, and nothing is learned"
    return f"the last step of an optimizer is {last}"


def _lost_errors(facts: Facts) -> Iterator[Sign]:
    """Exceptions of tasks are kept in futures that nobody asks."""
    for row in facts.rows(_TASKS):
        if row["asked"] or max(row["lost"], row["kept"]) < _LEAST_LOST:
            continue  # somebody does ask, and leaves out the others once one has failed
        is_lost = row["lost"] >= _LEAST_LOST
        is_own = row["file"] is not None and not _IN_PACKAGES.search(row["file"])
        name = row["function"] or "a task of another process"
        place = f" ({row['line']})" if row["line"] else ""
        number = row["lost"] if is_lost else row["kept"]
        yield Sign(
            certainty="likely" if is_lost and is_own else "possible",
            summary=f"{number} calls of {name}{place} in an executor ended by an exception, and"
            f" nobody {'asked' if is_lost else 'has asked so far'}: {row['error']}",
            since_step=row["since"],
            evidence=(
                f"python.task_errors: {row['lost']} futures have gone unasked, and {row['kept']}"
                " are kept",
            ),
            weight=0.5 if is_lost else 0.1,
        )
        return


_FIX = (
    "Find the `except` around the step that goes on without a word (`except Exception: continue`),"
    " and let it print: traceback.print_exc()."
)
RULES = (
    Rule(
        name="failing-calls",
        group="numbers",
        subject="progress",
        symptom="The loop runs and the bar moves, and nothing is learned; no error is printed.",
        evidence=(
            f"`failed` of python.torch_trace: of the last {_NEWEST} calls of the model in"
            " training mode, backward passes or steps of an optimizer, half and 8 or more ended by"
            " an exception. Only possible where steps are made and no optimizer trains the model."
            " Not of a process without an optimizer."
        ),
        certainty="likely",
        gravity=88,
        fix=_FIX,
        next='probing ENDPOINT query "SELECT step, stage, module, class FROM python.torch_trace'
        ' WHERE failed ORDER BY seq DESC LIMIT 20"',
        asks=(_CALLS,),
        look=_failing_calls,
    ),
    Rule(
        name="no-backward",
        group="numbers",
        subject="progress",
        symptom="The loop runs and the bar moves, and nothing is learned; no error is printed.",
        evidence=(
            f"python.torch_trace and python.batches: {_MANY} calls of a model in training mode"
            f" with gradients, {_FAR_MORE} times as many as any step had, each with a batch of a"
            " loader, since the last backward pass. Likely where there was none ever, or"
            f" {_EPOCHS} epochs went by since. Only possible where steps are made and gradients"
            " may be estimated. Not of a process without an optimizer."
        ),
        certainty="likely",
        gravity=87,
        fix=_FIX,
        next='probing ENDPOINT query "SELECT stage, count(*), max(step) FROM python.torch_trace'
        ' WHERE depth = 0 GROUP BY ALL"',
        asks=(_SINCE,),
        look=_no_backward,
    ),
    Rule(
        name="unused-batches",
        group="numbers",
        subject="progress",
        symptom="The loader works, and the model is not called.",
        evidence=f"python.batches: {_MANY} batches and {_EPOCHS} epochs since the last call of any"
        " model and the last step of an optimizer. One epoch alone may collect statistics, or skip"
        " what a resumed training has seen. Not of a process without an optimizer.",
        certainty="likely",
        gravity=86,
        fix=_FIX,
        next='probing ENDPOINT query "SELECT loader, count(*), max(batch) FROM python.batches'
        ' GROUP BY ALL"',
        asks=(_SINCE,),
        look=_unused_batches,
    ),
    Rule(
        name="lost-errors",
        group="numbers",
        subject="progress",
        symptom="A checkpoint or a metric that another thread was to write is not there; no error"
        " is printed.",
        evidence=(
            f"python.task_errors: {_LEAST_LOST} or more exceptions of one function that"
            " `executor.submit` was given, whose futures have gone before anybody called"
            " `result()` or `exception()`. Only possible of a function of a library or of another"
            " process, and of futures that are kept."
        ),
        certainty="likely",
        gravity=60,
        fix="Keep what submit() returns and call its result(), at the latest before the next one is"
        " submitted; or print the exception in add_done_callback.",
        source="https://docs.python.org/3/library/concurrent.futures.html",
        next='probing ENDPOINT query "FROM python.task_errors ORDER BY seq DESC LIMIT 20"',
        asks=(_TASKS,),
        look=_lost_errors,
    ),
)
