"""Rules about what feeds the training: waits for batches, and the order of what comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....units import duration
from ..facts import Facts, Steps, percent
from ..findings import Rule, Sign
from ..not_looked_at import NotLookedAt
from ..series import last_change
from .pace.slow_workers import slow_worker

_LEAST_WAIT = 0.2
"""Less than a fifth of the time is not worth anybody's night."""
_WORTH_WAIT = 0.3
"""Less, and from the start: without it a training is 1.4 times as fast at most."""
_MOST_WAIT = 0.4
_SHORT_S = 0.001
"""Where a step is so short, a batch from memory takes a part of it by itself."""
_IS_BEHIND = "at the end of most steps the device had not done the ones before (`host_bound`)"
_MANY_BATCHES = 20
_REPEATS = 12

_BATCHES = (
    "SELECT loader, batch, worker, duration, exhausted, step FROM python.batches"
    " WHERE duration IS NOT NULL AND NOT failed ORDER BY seq DESC LIMIT 400"
)
_MICRO_BATCHES = (
    "SELECT step, min(size) AS least, max(size) AS most, count(*) AS number"
    " FROM (SELECT step, CASE WHEN count(tokens) OVER own = count(*) OVER own THEN tokens"
    "   WHEN bool_and(coalesce(varies, false)) OVER own THEN elements ELSE samples END AS size"
    "  FROM (SELECT step, tokens, samples, elements,"
    "   min(elements / samples) OVER one <> max(elements / samples) OVER one"
    "   AND min(samples) OVER own = max(samples) OVER own AS varies"
    "   FROM python.micro_batches WHERE duration IS NOT NULL AND failed IS NOT TRUE"
    "   AND step NOT IN (SELECT step FROM python.steps WHERE optimizer_steps > 1)"
    "   WINDOW one AS (PARTITION BY micro_batch), own AS (PARTITION BY step))"
    "  WINDOW own AS (PARTITION BY step))"
    " GROUP BY step HAVING count(*) > 1 ORDER BY step DESC LIMIT 100"
)


def _data_wait(facts: Facts) -> Iterator[Sign]:
    """The training waits for its batches."""
    now = facts.now()
    share = now.shares()["data_wait"]
    if share < _LEAST_WAIT:
        return
    per_step = now.column("data_wait_s", missing=0.0) / now.column("duration")
    first = _share_of_first(facts, now)
    if float(np.median(per_step)) < _LEAST_WAIT / 2 and first < 0.5:  # it is not usual
        return
    rows = _awaited_loaders(facts, now)
    if first >= 0.5:
        yield _restarting(share, first, rows)
        return
    slow, perhaps_slow = slow_worker(facts, facts.rows(_BATCHES), rows)
    words = [
        f"{percent(share)} of the last {len(now)} steps is waiting for data,"
        f" {duration(now.seconds('data_wait') / len(now))} in each",
        *slow,
        *_loader_words(rows),
        *perhaps_slow,
    ]
    since, before = _since(facts.steps.settled())
    if before is not None and before < share / 1.3:
        words.append(f"{percent(before)} of a step before step {since}")
    else:
        since = before = None
    is_busy = _has_work_meanwhile(now)
    is_short = now.seconds("data_wait") / len(now) < _SHORT_S
    is_weak = is_short or is_busy or (share < _WORTH_WAIT and since is None)
    yield Sign(
        certainty="possible" if is_weak else "certain" if share >= _MOST_WAIT else "likely",
        summary=f"The training waits for its data: {percent(share)} of each step"
        + (f" since step {since}, {percent(before)} before" if before is not None else "")
        + ("; the device has work meanwhile" if is_busy else "")
        + "".join(f"; {word}" for word in words[1:2]),
        since_step=since,
        evidence=(*words, *((_IS_BEHIND,) * is_busy)),
        weight=share,
        fix=_data_fix(rows),
    )


def _has_work_meanwhile(now: Steps) -> bool:
    """Whether a device still has work from before at the end of most steps: it awaits no batch.

    So it is where a step is few launches, as of a CUDA graph, and the host seldom waits for it.
    """
    known = [bool(row["host_bound"]) for row in now.rows if row["host_bound"] is not None]
    return 2 * len(known) > len(now) and 2 * sum(known) < len(known)


def _share_of_first(facts: Facts, now: Steps) -> float:
    """What part of the waiting is for iterators that are made and for first batches of epochs."""
    batches = facts.rows(_BATCHES)
    first = min((row["step"] for row in batches), default=0)  # it may have more than are read
    whole = Steps([row for row in now.rows if row["step"] > first])
    total, steps = whole.seconds("data_wait"), set(whole.numbers)
    rows = [row for row in batches if row["step"] in steps]
    firsts = sum(not row["batch"] for row in rows)
    if firsts < 3 or not total:
        return 0.0
    later: float = sum(row["duration"] for row in rows if row["batch"])
    return max(0.0, 1 - later / total)


def _restarting(share: float, first: float, rows: list[dict[str, Any]]) -> Sign:
    """Waits for the first batch of each epoch make most of it."""
    restarted = any(row["num_workers"] and not row["persistent_workers"] for row in rows)
    fix = (
        "Set persistent_workers=True, or make an epoch longer: the workers are started anew for"
        " each epoch."
        if restarted
        else "Make what the dataset does at the start of an epoch once, or in a worker."
    )
    return Sign(
        certainty="likely" if restarted else "possible",
        summary=f"The training waits at the start of each epoch: {percent(share)} of the time, "
        + ("while its data workers are started" if restarted else "for the first batch"),
        evidence=(f"{percent(first)} of all waiting is for the start of an epoch",),
        weight=share,
        fix=fix,
    )


def _loaders(facts: Facts) -> list[dict[str, Any]]:
    """The rows of python.dataloaders, one for each loader; none where it cannot be asked."""
    try:
        rows = facts.live("dataloaders")
    except NotLookedAt:
        return []
    return list({row["loader"]: row for row in rows}.values())


def _awaited_loaders(facts: Facts, now: Steps) -> list[dict[str, Any]]:
    """The loaders of which batches were waited for in some steps, the most awaited first.

    Others, such as that of an evaluation, keep nobody waiting. All are given where it is not on
    record whose batches were waited for.
    """
    steps = set(now.numbers)
    waits: dict[int, float] = {}
    for row in facts.rows(_BATCHES):
        if row["step"] in steps:
            waits[row["loader"]] = waits.get(row["loader"], 0.0) + row["duration"]
    rows = _loaders(facts)
    least = _LEAST_WAIT * sum(waits.values())
    found = [row for row in rows if waits.get(row["loader"], 0.0) > least]
    return sorted(found, key=lambda row: -waits[row["loader"]]) or rows


def loader_words(facts: Facts) -> list[str]:
    """What the loaders are that keep a process waiting."""
    return _loader_words(_awaited_loaders(facts, facts.now()))


def fix_of_loaders(facts: Facts) -> str:
    """What to do about them; empty where they are not known."""
    return _data_fix(_awaited_loaders(facts, facts.now()))


def _loader_words(rows: list[dict[str, Any]]) -> list[str]:
    """What the loaders are."""
    return [f"loader {row['loader']} of {row['dataset']}: {_workers_of(row)}" for row in rows]


def _workers_of(row: dict[str, Any]) -> str:
    number = row["num_workers"]
    if not number:
        return "no workers, so that each batch is made by the training thread"
    return f"{number} worker{'' if number == 1 else 's'}"


def _data_fix(rows: list[dict[str, Any]]) -> str:
    if rows and rows[0]["num_workers"] == 0:
        return "Give the DataLoader workers: num_workers=2 or more, and persistent_workers=True."
    if rows:
        return (
            "Have each worker do less for a sample (open and parse a file once, not each time; put"
            " the data on a faster disk), or raise num_workers where processors are idle."
        )
    return ""


def _since(steps: Steps) -> tuple[int | None, float | None]:
    """Since which step the waiting is what it is, and its share of a step before."""
    waits = steps.column("data_wait_s", missing=0.0)
    change = last_change(waits, least_ratio=1.5)
    if change is None or change.after <= change.before:
        return None, None
    whole = steps.column("duration")[: change.place]
    return steps.numbers[change.place], float(np.median(waits[: change.place] / whole))


def _same_first_batch(facts: Facts) -> Iterator[Sign]:
    """Each step takes the first batch of a new iterator."""
    known = facts.rows(_BATCHES)
    rows = [row for row in known if not row["exhausted"]]
    newest = rows[: 2 * _MANY_BATCHES]
    is_whole = len(known) - len(rows) > len(rows) / 2  # an epoch is one batch
    if len(newest) < _MANY_BATCHES or is_whole or any(row["batch"] for row in newest):
        return
    steps = {row["step"] for row in newest}
    if len(steps) < _REPEATS:
        return
    sampler = _samplers(facts, {row["loader"] for row in newest})
    same = sampler <= {"SequentialSampler"}
    yield Sign(
        certainty="likely" if sampler and same else "possible",
        summary="Each step takes the first batch of a new iterator over the loader"
        + (", so that the model sees the same batch for ever" if same else ""),
        evidence=(
            f"the last {len(newest)} batches were all number 0 of their epoch",
            *(f"the loader's sampler is a {name}" for name in sampler),
        ),
        weight=1.0,
    )


def _samplers(facts: Facts, loaders: set[int]) -> set[str]:
    return {r["sampler"] for r in _loaders(facts) if r["loader"] in loaders and r.get("sampler")}


def _same_order(facts: Facts) -> Iterator[Sign]:
    """The data come in one order in every epoch."""
    rows = _loaders(facts)
    most = max((row["given"] for row in rows), default=0)  # the one that is trained on
    shuffles = any(row["sampler"] != "SequentialSampler" and row["batches"] for row in rows)
    for row in rows:
        if row["given"] < most or not row["batches"] or row["epochs"] < 2:
            continue
        if row["sampler"] == "SequentialSampler":
            if shuffles:  # then another one is trained on, and this one evaluates
                continue
            yield Sign(
                certainty="possible",
                summary=f"Loader {row['loader']} gives its samples in the same order in each epoch:"
                " it does not shuffle",
                evidence=(
                    f"its sampler is a SequentialSampler; {row['epochs']} epochs have begun",
                ),
                weight=0.5,
                fix="Make the DataLoader with shuffle=True, unless the order is meant.",
            )
        elif row["sampler_epoch"] == 0 and row.get("sampler_shuffles") is not False:
            yield Sign(
                certainty="likely",
                summary=f"Loader {row['loader']} gives its samples in the same order in each epoch:"
                " set_epoch was never called on its sampler",
                evidence=(
                    f"the {row['sampler']} is at epoch 0, and {row['epochs']} epochs have begun",
                ),
                weight=0.5,
            )


def _whole_stream(facts: Facts) -> Iterator[Sign]:
    """Each worker yields all that there is."""
    for row in _loaders(facts):
        if row.get("divides_stream") is False and row["given"]:
            yield Sign(
                certainty="possible",
                summary=f"Each of the {row['num_workers']} workers of loader {row['loader']} may"
                f" yield all of {row['dataset']}, so that every sample comes"
                f" {row['num_workers']} times",
                evidence=(
                    f"{row['dataset']} is iterated, and nothing in its module asks get_worker_info;"
                    " the loader has no worker_init_fn",
                ),
                weight=0.5,
            )


def _uneven_micro_batches(facts: Facts) -> Iterator[Sign]:
    """Micro-batches of very different size have the same weight in the gradient."""
    spread = [row["most"] / row["least"] for row in facts.rows(_MICRO_BATCHES) if row["least"]]
    if len(spread) < 5 or float(np.median(spread)) < 2:
        return
    yield Sign(
        certainty="possible",
        summary="Micro-batches of very different size are accumulated: if each loss is a mean over"
        " all that is in it, what is in the small ones counts more",
        evidence=(
            f"in the middle of {len(spread)} steps the largest micro-batch is"
            f" {float(np.median(spread)):.1f} times the smallest",
        ),
        weight=0.3,
    )


RULES = (
    Rule(
        name="data-wait",
        group="slow",
        subject="data",
        symptom="The processor or accelerator idles between steps while a batch is made.",
        evidence=(
            "`data_wait_s` of python.steps: a fifth of the last 100 steps, and a tenth of most of"
            " them; certain from two fifths; only possible below a millisecond a step, below"
            f" {percent(_WORTH_WAIT)} if it always was so, or where `host_bound` is false in most"
            " steps. A worker is named whose batches are waited for three times as long as the"
            " others'."
        ),
        certainty="certain",
        gravity=40,
        fix="Raise num_workers, or have each sample cost less.",
        source="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        next="probing ENDPOINT dataloaders",
        look=_data_wait,
    ),
    Rule(
        name="same-first-batch",
        group="numbers",
        subject="data",
        symptom="The loss falls to nothing and the model has learned one batch.",
        evidence=f"`batch` of python.batches: the last {_MANY_BATCHES} batches of as many steps are"
        " all the first of their epoch; likely where no sampler of their loaders shuffles.",
        certainty="likely",
        gravity=66,
        fix="Make the iterator once for each epoch, outside of the loop: `for batch in loader`.",
        next='probing ENDPOINT query "SELECT step, loader, batch FROM python.batches LIMIT 20"',
        asks=(_BATCHES,),
        look=_same_first_batch,
    ),
    Rule(
        name="same-order",
        group="numbers",
        subject="data",
        symptom="The loss swings with a period of one epoch; what comes last is known best.",
        evidence="`sampler`, `sampler_epoch` and `epochs` of python.dataloaders: a loader that is"
        " trained on has begun its second epoch with a sequential sampler, or with a sampler whose"
        " `set_epoch` was never called.",
        certainty="likely",
        gravity=58,
        fix="Call sampler.set_epoch(epoch) before each epoch.",
        source="https://pytorch.org/docs/stable/data.html",
        next="probing ENDPOINT dataloaders",
        look=_same_order,
    ),
    Rule(
        name="whole-stream",
        group="numbers",
        subject="data",
        symptom="An epoch has as many times its batches as there are workers; each comes again.",
        evidence="`divides_stream` of python.dataloaders: an IterableDataset of the script's own,"
        " with two workers or more, in whose module nothing asks `get_worker_info`, and no"
        " `worker_init_fn`. It is right where each worker draws samples of its own at random.",
        certainty="possible",
        gravity=57,
        fix="In `__iter__` give each worker its part: `islice(samples, info.id, None,"
        " info.num_workers)` with `info = torch.utils.data.get_worker_info()`.",
        source="https://pytorch.org/docs/stable/data.html#iterable-style-datasets",
        next="probing ENDPOINT dataloaders",
        look=_whole_stream,
    ),
    Rule(
        name="uneven-micro-batches",
        group="numbers",
        subject="data",
        symptom="Accumulation gives other results than the same samples in one batch.",
        evidence="`tokens`, else `elements` where those of a sample vary from step to step and"
        " `samples` not within one, else `samples` of python.micro_batches: the largest of a step"
        " is twice the smallest in most steps, where one optimizer steps.",
        certainty="possible",
        gravity=45,
        fix="Divide the sum of all losses by the number of all tokens of the step.",
        source="https://huggingface.co/blog/gradient_accumulation",
        next='probing ENDPOINT query "SELECT step, micro_batch, samples, tokens, elements,'
        ' loss FROM python.micro_batches ORDER BY seq DESC LIMIT 20"',
        asks=(_MICRO_BATCHES,),
        look=_uneven_micro_batches,
    ),
)
