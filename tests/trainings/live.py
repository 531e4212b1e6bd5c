"""Asks a training while it runs: attaches to it late, looks at it, and changes it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.trainings.catalog import Training
from tests.trainings.cells import Cell, declined, not_asked, right, wrong
from tests.trainings.recorded import ask, judge_late
from tests.trainings.running import DEADLINE_S, Running, Said, ScriptFailedError, command, running
from tests.trainings.truths import Account, Step

FOR_EVER = 1_000_000
_SCALE = 0.5
_NO_GRADIENTS = r"no optimizer has stepped|a call of a model without a backward pass"
_COMMANDS = ("memory", "doctor", "fit", "gradients", "profile", "act lr", "undo")
_PEAK_TOLERANCE = 0.03
_STEPS_DIFFER = 1.1
_STEPS_OF_PEAKS = 14
_SAYS_WHY_NOT = re.compile("left out|not predicted")


def judge_live(training: Training, folder: Path, *, doctor: bool = True) -> list[Cell]:
    """Attach to a running script and put every question to it.

    Args:
        doctor: Whether `doctor` is asked, too, which takes the longest.
    """
    peaks = _peaks_of(training, folder)
    with running(training, folder / "late", probing=False, steps=FOR_EVER) as script:
        cells = _judge_attach(script)
        if cells[0].outcome == "right":
            return cells + _judge_commands(script, peaks, doctor=doctor)
    # What cannot be attached to is asked the rest with the agent from the start.
    with running(training, folder / "early", probing=True, steps=FOR_EVER) as script:
        script.wait_steps(6)
        return cells + _judge_commands(script, peaks, doctor=doctor)


def _peaks_of(training: Training, folder: Path) -> Sequence[int]:
    """What its steps take at most, in a run of its own: the profiler would be in our way."""
    if training.ranks > 1 or not training.trains:
        return []
    with running(
        training, folder / "peaks", probing=False, steps=_STEPS_OF_PEAKS, peaks=True
    ) as script:
        return script.wait_end()[0].peaks


def _judge_attach(script: Running) -> list[Cell]:
    script.wait_steps(4)
    said = command("attach", "--timeout", f"{DEADLINE_S:.0f}", *_targets(script))
    if said.code:
        return [wrong("attach", said.text, "a training that runs"), not_asked("number")]
    try:
        script.wait_steps(8)
    except ScriptFailedError as failure:
        text = f"{said.text}\n{failure}"
        return [wrong("attach", text, "harm: a training that ran"), not_asked("number")]
    rows = ask(script.pids[0], "SELECT * FROM python.steps WHERE duration IS NOT NULL ORDER BY seq")
    return judge_late(script.training, script.account(), rows)


def _judge_commands(script: Running, peaks: Sequence[int], *, doctor: bool) -> list[Cell]:
    cells = []
    questions: dict[str, Callable[[Running], Cell]] = {
        "memory": _judge_memory,
        "doctor": _judge_doctor,
        "fit": lambda script: _judge_fit(script, peaks),
        "gradients": _judge_gradients,
        "profile": _judge_profile,
    }
    for column, judge in questions.items():
        if not script.training.trains or (column == "doctor" and not doctor):
            cells.append(not_asked(column))
            continue
        cells.append(judge(script))
        if harm := _harm(script):
            return [*cells[:-1], wrong(column, harm, "harm: a training that ran"), *_rest(column)]
    try:
        return cells + _judge_rates(script)
    except ScriptFailedError as failure:
        return [
            *cells,
            wrong("act lr", str(failure), "harm: a training that ran"),
            *_rest("act lr"),
        ]


def _judge_memory(script: Running) -> Cell:
    """What models learn and optimizers remember has the size that the script counts."""
    said = command(str(script.pids[0]), "memory", "--format", "json", "-n", "0")
    if said.code:
        return wrong("memory", said.text, "a training that has parameters")
    true = script.account().held
    if not true:
        return not_asked("memory")
    told: dict[str, int] = {}
    for row in _records(json.loads(said.out), "category"):
        told[row["category"]] = max(row["bytes"], told.get(row["category"], 0))
    off = {
        name: size
        for name, size in true.items()
        if not math.isclose(told.get(name, 0), size, rel_tol=0.01, abs_tol=64)
    }
    if not off:
        return right("memory")
    return wrong("memory", f"{ {name: told.get(name) for name in off} } bytes", f"{off} bytes")


def _judge_doctor(script: Running) -> Cell:
    """Nothing is wrong with it, and nothing is said to be."""
    if not script.training.healthy:
        return not_asked("doctor")
    said = command(str(script.pids[0]), "doctor", "--check", "likely")
    if not said.code:
        return right("doctor")
    return wrong("doctor", said.text, "no finding that is certain or likely")


def _judge_fit(script: Running, peaks: Sequence[int]) -> Cell:
    """A step is predicted to take what one takes, within 3 %, or it is said why it is not."""
    if not peaks or max(peaks) > _STEPS_DIFFER * min(peaks):
        return not_asked("fit")  # nobody knows which of them it is held against
    said = command(str(script.pids[0]), "fit", "--format", "json")
    if said.code == 4 and "cannot be predicted" in said.err:
        return declined("fit")
    if said.code and not script.training.backward and "with a backward pass was seen" in said.err:
        return declined("fit")
    if said.code:
        return wrong("fit", said.text, f"{peaks} bytes")
    answer = json.loads(said.out)
    predicted = answer["now"]["bytes"]
    least, most = min(peaks) * (1 - _PEAK_TOLERANCE), max(peaks) * (1 + _PEAK_TOLERANCE)
    if least <= predicted <= most:
        return right("fit")
    if any(_SAYS_WHY_NOT.search(note) for note in answer["notes"]):
        return declined("fit")
    text = f"{predicted} bytes (measured {answer['measured_bytes']}); {answer['notes']}"
    return wrong("fit", text, f"{list(peaks)} bytes")


def _judge_gradients(script: Running) -> Cell:
    said = command(str(script.pids[0]), "gradients", "-n", "0", "--format", "json")
    if not script.training.backward and re.search(_NO_GRADIENTS, said.err):
        return declined("gradients")
    if said.code:
        return wrong("gradients", said.text, "parameters have gradients")
    if script.training.rates == "of no optimizer" and "results of torch.func.grad" in said.out:
        return declined("gradients")
    named = {str(row["parameter"]): row for row in _records(json.loads(said.out), "parameter")}
    account = script.account()
    missing = sorted(name for name in account.parameters if not _is_named(name, named))
    left_out = re.search(r"(\d+) gradients? w(?:as|ere) left out", said.err)
    if left_out and int(left_out[1]) >= len(missing):
        return right("gradients")  # it says itself what it does not show
    if missing and not _trained_in_turns(script.training):
        told = ", ".join(list(named)[:6])
        return wrong(
            "gradients", f"{len(named)} parameters: {told}\n{said.err}", f"also {missing[:6]}"
        )
    if not named:
        return wrong("gradients", said.text, "parameters have gradients")
    bad = [name for name, row in named.items() if not math.isfinite(row.get("norm") or 0.0)]
    if bad:
        return wrong("gradients", f"not finite: {bad[:6]}", "finite")
    return right("gradients")


def _judge_profile(script: Running) -> Cell:
    said = command(str(script.pids[0]), "profile", "--steps", "1", "--format", "json")
    if (
        script.training.rates == "of no optimizer"
        and "inside of functions of torch.func" in said.err
    ):
        return declined("profile")
    if said.code:
        return wrong("profile", said.text, "a training that makes steps")
    return right("profile")


def _judge_rates(script: Running) -> list[Cell]:
    script.wait_steps(10)
    before = script.account()
    targets = [word for pid in script.pids for word in ("-t", str(pid))]
    acted = command(*targets, "act", "lr", "--scale", str(_SCALE))
    by_hand = script.training.rates == "set by the script"
    after_act = script.wait_steps(50 if by_hand else 5)  # it has set its own again by then
    undone = command(*targets, "act", "undo") if acted.code == 0 else None
    after_undo = script.wait_steps(10)
    if script.training.rates in {"of no optimizer", "none"}:
        cell = right("act lr") if acted.code else wrong("act lr", acted.text, "no optimizer")
        return [cell, not_asked("undo")]
    since = acted.start_ns if by_hand else acted.end_ns
    cell = _judge_act(_changes(before, after_act, since), acted, by_hand=by_hand)
    if undone is None:
        return [cell, not_asked("undo")]
    back = _changes(before, after_undo, undone.start_ns if by_hand else undone.end_ns)
    off = {name: was for name, was in back.items() if any(not 0.9 < c < 1.1 for c in was)}
    if not off and (undone.code == 0 or by_hand):  # what the script has overwritten is not undone
        return [cell, right("undo")]
    text = f"{acted.text}\n{undone.text}\nafter undo, times what it was: {_told(back)}"
    return [cell, wrong("undo", text, "1 for each")]


def _judge_act(changes: Mapping[str, Sequence[float]], acted: Said, *, by_hand: bool) -> Cell:
    if acted.code:
        return wrong("act lr", acted.text, "a rate that can be changed")
    if all(_SCALE * 0.9 < was[-1] < _SCALE * 1.1 for was in changes.values()):
        return right("act lr")
    if by_hand:  # in force until the script sets its own again, or said not to be
        was_in_force = any(_SCALE * 0.9 < v < _SCALE * 1.1 for was in changes.values() for v in was)
        if was_in_force or "--hold" in acted.out + acted.err:
            return right("act lr")
    if "has made another optimizer since" in acted.out + acted.err:
        return declined("act lr")
    text = f"{acted.text}\nrates, times what they were: {_told(changes)}"
    return wrong("act lr", text, "0.5 each")


def _changes(before: Account, after: Account, since_ns: int) -> dict[str, list[float]]:
    """Say by how much each rate was multiplied in each step since, beside its own schedule."""
    first = next((i for i, s in enumerate(after.steps) if s.start_ns > since_ns), None)
    if first is None:
        raise ScriptFailedError("it made no steps behind the action")
    changes = {}
    for name in {name for step in before.steps[-10:] for name in step.rates}:
        last = max(i for i, step in enumerate(before.steps) if name in step.rates)
        trend, rate = _trend(before.steps, name), before.steps[last].rates[name]
        changes[name] = [
            after.steps[i].rates[name] / (rate * trend ** (i - last))
            for i in range(first, len(after.steps))
            if name in after.steps[i].rates
        ]
    return changes


def _trend(steps: Sequence[Step], name: str) -> float:
    """Give the factor by which a schedule changes a rate from step to step."""
    known = [step.rates[name] for step in steps[-10:] if name in step.rates]
    return float((known[-1] / known[0]) ** (1 / max(1, len(known) - 1)))


def _harm(script: Running) -> str:
    """Say what has become of the training, if it does not go on."""
    try:
        script.wait_steps(3)
    except ScriptFailedError as failure:
        return str(failure)
    losses = [v for v in script.account().steps[-1].losses.values() if not math.isfinite(v)]
    return f"loss {losses}" if losses else ""


def _rest(column: str) -> list[Cell]:
    """Give the cells that nobody could ask for any more."""
    return [not_asked(later) for later in _COMMANDS[_COMMANDS.index(column) + 1 :]]


def _targets(script: Running) -> list[str]:
    if len(script.pids) == 1:
        return [str(script.pids[0])]
    return [word for pid in script.pids for word in ("-t", str(pid))]


def _records(answer: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """Give every record with the key, wherever it stands in an answer in JSON."""
    if isinstance(answer, Mapping):
        if key in answer:
            yield answer
        answer = list(answer.values())
    if isinstance(answer, list):
        for part in answer:
            yield from _records(part, key)


def _is_named(name: str, named: Mapping[str, Any]) -> bool:
    return any(
        told == name or told.endswith("." + name) or name.endswith("." + told) for told in named
    )


def _trained_in_turns(training: Training) -> bool:
    return training.name in {"alternating", "ddp_unused"}


def _told(changes: Mapping[str, Sequence[float]]) -> str:
    return ", ".join(
        f"{name or 'lr'} {min(was):.3g} to {max(was):.3g}" for name, was in changes.items()
    )
