"""Holds what is on record of a training against the training's own account of itself."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

import probing
from tests.trainings.catalog import Training
from tests.trainings.cells import Cell, not_asked, right, wrong
from tests.trainings.truths import Account, Step

Row: TypeAlias = Mapping[str, Any]
Series: TypeAlias = Mapping[int, float]

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
_PHASES = {
    "data": ("data_wait_s",),
    "forward": ("forward_s",),
    "backward": ("backward_s", "gradient_sync_s"),  # who times backward() times the exchange, too
    "optimizer": ("optimizer_s",),
}
_ASKED_FROM_S = 0.005  # a phase that is shorter is left to its noise
_TOLERANCE = 0.1
_TOLERANCE_OF_FEW = 0.25  # where one step or two are all that there is to see


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What SQL answers of one process.

    Attributes:
        steps: The rows of `python.steps` that have ended.
        tables: The rows of every table that has losses or rates, `python.steps` too.
        calls: Which modules were called, by model and name.
        costs: Seconds of processor time that recording has cost, by step.
    """

    steps: Sequence[Row]
    tables: Mapping[str, Sequence[Row]]
    calls: Sequence[Row]
    costs: Series


def read_record(pid: int) -> Record:
    """Ask for everything that is held against the account; the process may have ended."""
    tables = {
        name: [row for row in ask(pid, f"SELECT * FROM {name} ORDER BY seq") if _is_over(row)]
        for name in _tables_of_losses()
    }
    calls = ask(pid, "SELECT * FROM python.torch_trace WHERE stage = 'forward' AND NOT recomputed")
    spent = ask(pid, "SELECT step, cost_s FROM probing.overhead WHERE cost_s IS NOT NULL")
    costs = {row["step"]: row["cost_s"] for row in spent}
    return Record(steps=tables["python.steps"], tables=tables, calls=calls, costs=costs)


def ask(pid: int, sql: str) -> list[Row]:
    """Ask one statement, as the docs say."""
    rows: list[Row] = pa.table(probing.connect(pid).query(sql)).to_pylist()
    return rows


def _tables_of_losses() -> list[str]:
    """Give the tables which the docs say have losses or rates by step."""
    sections = _PAGE.read_text(encoding="utf-8").split("\n## ")
    return [
        section.split("\n", 1)[0]
        for section in sections
        if "*Recorded.*" in section and re.search(r"^- `(loss|lr)` ", section, re.MULTILINE)
    ]


def judge_record(training: Training, account: Account, record: Record) -> list[Cell]:
    """Judge everything that the record of a whole run says."""
    steps = account.steps
    if training.rates == "of no optimizer" and len(record.steps) == len(steps) - 1:
        steps = steps[:-1]  # without an optimizer a step has ended when the next has begun
    return [
        judge_steps(steps, record.steps),
        _judge_loss(steps, record),
        _judge_phases(training, steps, record),
        _judge_names(training, account, record.calls),
        _judge_rates(training, steps, record),
        _judge_norm(steps, record.steps),
        _judge_samples(steps, record.steps),
    ]


def judge_steps(steps: Sequence[Step], rows: Sequence[Row], *, column: str = "steps") -> Cell:
    """Each step of the script has one row, and no row is of none."""
    held = collections.Counter(index for index, _ in _placed(rows, steps))
    odd = [index for index in range(len(steps)) if held[index] != 1]
    if not odd and held[-1] == 0:
        return right(column)
    counts = [held[index] for index in range(len(steps))]
    said = f"{len(rows)} rows; per step of the script: {_few(counts, 24)}"
    if held[-1]:
        said += f"; {held[-1]} rows before its first step"
    return wrong(column, said, f"{len(steps)} steps, a row each")


def _judge_loss(steps: Sequence[Step], record: Record) -> Cell:
    """What the script prints is there, and what stands for a step is one loss or their mean."""
    names = sorted({name for step in steps for name in step.losses})
    if not names:
        return not_asked("loss")
    shown = _series(record.steps, steps, "loss")[()]
    known = list(_candidates(record, steps, "loss", "first_loss", "last_loss"))
    missing = []
    for name in names:
        printed = {i: s.losses[name] for i, s in enumerate(steps) if name in s.losses}
        mean = {i: s.means[name] for i, s in enumerate(steps) if name in s.means}
        is_known = any(_equal(found, printed) for found in known)
        if len(names) == 1:
            is_right = is_known and (_equal(shown, printed) or _equal(shown, mean))
        else:
            is_right = is_known or any(_equal(found, mean) for found in known)
        if not is_right:
            missing.append(f"{name or 'printed'} {_numbers(printed)}")
            missing += [f"its mean {_numbers(mean)}"] if mean else []
    mixed = {i: statistics.fmean(s.losses.values()) for i, s in enumerate(steps)}
    if len(names) > 1 and _equal(shown, mixed):
        missing.append("never the average of different losses")
    if not missing:
        return right("loss")
    return wrong("loss", f"steps.loss {_numbers(shown)}", "; ".join(missing))


def _judge_phases(training: Training, steps: Sequence[Step], record: Record) -> Cell:
    """Phases are as long as the script measures them, and so where it evaluates in between.

    What recording itself costs is in the script's times, and in no phase.
    """
    placed = _placed(record.steps, steps)
    if [index for index, _ in placed] != list(range(len(steps))):
        return not_asked("phases")  # no two of them are times of the same thing
    pairs = {}
    for phase, columns in _PHASES.items():
        if phase == "optimizer" and training.rates == "of no optimizer":
            continue  # its update is a line of the script like any other
        trues = [step.phases.get(phase, 0.0) for step in steps]
        saids = [math.fsum(row[column] or 0.0 for column in columns) for _, row in placed]
        quiet = _undisturbed([row for _, row in placed])
        usual = _medians([saids[i] for i in quiet], [trues[i] for i in quiet])
        pairs[phase] = (*usual, _TOLERANCE)
        for where, few in _beside_evaluation(steps).items() if phase == "forward" else ():
            some = _medians([saids[i] for i in few], [trues[i] for i in few])
            pairs[f"{phase} {where}"] = (*some, _TOLERANCE_OF_FEW)
    asked = {name: pair for name, pair in pairs.items() if pair[1] >= _ASKED_FROM_S}
    cost = statistics.median(_cost_of(row, record.costs) for _, row in placed)
    off = {
        name: (said, true, tolerance)
        for name, (said, true, tolerance) in asked.items()
        if said - true > tolerance * true or true - said > tolerance * true + cost
    }
    if not off:
        return right("phases") if asked else not_asked("phases")
    return wrong(
        "phases",
        ", ".join(f"{name} {said * 1e3:.1f} ms" for name, (said, _, _) in off.items()),
        ", ".join(f"{name} {true * 1e3:.1f} ms a step" for name, (_, true, _) in off.items()),
    )


def _cost_of(row: Row, costs: Series) -> float:
    """How long recording has held up a step: longer where the processor is shared with others."""
    computed = row["duration"] - (row["data_wait_s"] or 0.0)
    shared = max(1.0, computed / row["cpu_s"]) if row["cpu_s"] else 1.0
    return costs.get(row["step"], 0.0) * shared


def _beside_evaluation(steps: Sequence[Step]) -> dict[str, list[int]]:
    """Give the steps which an evaluation may be taken for a part of."""
    beside = [i for i, step in enumerate(steps) if step.phases.keys() & {"evaluation", "rollout"}]
    groups = {"with evaluation": beside, "behind it": [i + 1 for i in beside if i + 1 < len(steps)]}
    return {where: few for where, few in groups.items() if few and len(beside) < len(steps)}


def _undisturbed(rows: Sequence[Row]) -> list[int]:
    """Give half of the steps, those that had the processor for themselves most.

    Where the kernel takes it away between two readings of the clock, the times of who reads first
    and who reads second differ by what others do: on a machine that is loaded, in most steps.
    """
    by_switches = sorted(range(len(rows)), key=lambda i: rows[i]["involuntary_switches"] or 0)
    return by_switches[: -(-len(rows) // 2)]


def _medians(saids: Sequence[float], trues: Sequence[float]) -> tuple[float, float]:
    """Give what is said of a usual step, and what is true of it.

    A machine that is loaded takes the processor away between two readings of the clock: that makes
    some steps odd, and not most of them.
    """
    true = statistics.median(trues)
    return true + statistics.median(s - t for s, t in zip(saids, trues, strict=True)), true


def _judge_names(training: Training, account: Account, calls: Sequence[Row]) -> Cell:
    if not training.layers:
        return not_asked("names")
    by_variable = bool(calls) and "model" in calls[0]
    if by_variable:
        found = {f"{row['model']}.{row['module']}" for row in calls}
        wanted = {f"{v}.{layer}" for v, m in account.models.items() for layer in m["layers"]}
    else:
        found = {str(row["module"]) for row in calls}
        wanted = {layer for model in account.models.values() for layer in model["layers"]}
    missing = sorted(w for w in wanted if not any(_ends_with(f, w) for f in found))
    if missing:
        return wrong("names", f"called: {_few(sorted(found), 12)}", f"called: {_few(missing, 12)}")
    if len(account.models) > 1 and not by_variable:
        roots = sorted({str(row["root"]) for row in calls})
        return wrong(
            "names",
            f"roots {_few(roots, 8)}; no model is told by its variable",
            f"models {_few(sorted(account.models), 8)}",
        )
    return right("names")


def _judge_rates(training: Training, steps: Sequence[Step], record: Record) -> Cell:
    if training.rates in {"of no optimizer", "none"}:
        return not_asked("rates")
    names = sorted({name for step in steps for name in step.rates})
    shown = _series(record.tables["python.steps"], steps, "lr")[()]
    missing = {}
    for name in names:
        true = {i: s.rates[name] for i, s in enumerate(steps) if name in s.rates}
        found = [shown] if names == [""] else list(_candidates(record, steps, "lr"))
        if not any(_equal(series, true) for series in found):
            missing[name] = true
    if not missing:
        return right("rates")
    true_text = "; ".join(f"{name or 'lr'} {_numbers(t)}" for name, t in missing.items())
    return wrong("rates", f"steps.lr {_numbers(shown)}", true_text)


def _judge_norm(steps: Sequence[Step], rows: Sequence[Row]) -> Cell:
    true = {i: step.norm for i, step in enumerate(steps) if step.norm is not None}
    if not true:
        return not_asked("norm")
    shown = _series(rows, steps, "grad_norm")[()]
    if _equal(shown, true):
        return right("norm")
    return wrong("norm", f"steps.grad_norm {_numbers(shown)}", _numbers(true))


def _judge_samples(steps: Sequence[Step], rows: Sequence[Row]) -> Cell:
    """As many samples as the script took, in every step."""
    true = {i: float(step.samples) for i, step in enumerate(steps) if step.samples is not None}
    if not true:
        return not_asked("samples")
    shown = _series(rows, steps, "samples")[()]
    if _equal(shown, true):
        return right("samples")
    return wrong("samples", f"steps.samples {_numbers(shown)}", _numbers(true))


def judge_late(training: Training, account: Account, rows: Sequence[Row]) -> list[Cell]:
    """Judge what is on record of a training that the agent came into while it ran."""
    if len(rows) < 3:
        return [wrong("attach", f"{len(rows)} rows", "steps go on"), not_asked("number")]
    # The step in which the agent came, and the one that is written now, are on record in part.
    steps = [step for step in account.steps if step.start_ns > rows[0]["start_ns"]]
    steps = [step for step in steps if step.end_ns <= _end(rows[-1])]
    if len(steps) < 2:
        return [wrong("attach", f"{len(rows)} rows", f"{len(steps)} steps"), not_asked("number")]
    # Without an optimizer a step ends a little behind the script's, as the next one begins; with
    # one it ends within the script's, which may have got no processor between the two ends.
    chosen = _middle if training.rates in {"of no optimizer", "none"} else _end
    rows = [row for row in rows if steps[0].start_ns <= chosen(row) <= steps[-1].end_ns]
    number = _judge_numbers(steps, rows) if training.numbered else not_asked("number")
    cell = judge_steps(steps, rows, column="attach")
    true = {i: s.losses[""] for i, s in enumerate(steps) if not s.means and "" in s.losses}
    shown = _series(rows, steps, "loss")[()]
    if cell.outcome == "right" and true and not _equal(shown, true):
        cell = wrong("attach", f"steps.loss {_numbers(shown)}", _numbers(true))
    return [cell, number]


def _judge_numbers(steps: Sequence[Step], rows: Sequence[Row]) -> Cell:
    """The numbers of steps are the script's, whether it counts from 0 or from 1."""
    apart = {row["step"] - steps[index].number for index, row in _placed(rows, steps)}
    if apart in ({0}, {1}):
        return right("number")
    said = f"steps {_few([row['step'] for row in rows], 6)}"
    return wrong("number", said, f"steps {_few([step.number for step in steps], 6)}")


def _candidates(record: Record, steps: Sequence[Step], *columns: str) -> Iterator[Series]:
    """Give every series of values that a person could take out of the tables."""
    for rows in record.tables.values():
        for column in columns:
            yield from _series(rows, steps, column).values()


def _series(
    rows: Sequence[Row], steps: Sequence[Step], column: str
) -> dict[tuple[Any, ...], dict[int, float]]:
    """Give the values by step: of all rows, and by what the other columns tell rows apart by.

    Where a step has several, it is the last of them.
    """
    told_by = [name for name in (rows[0] if rows else ()) if _tells_apart(name, rows)]
    keys = [(), *((name,) for name in told_by), *itertools.combinations(told_by, 2)]
    found: dict[tuple[Any, ...], dict[int, float]] = {(): {}}
    for index, row in _placed(rows, steps):
        value = row.get(column)
        for key in keys:
            if value is not None or not key:
                group = tuple((name, row[name]) for name in key)
                found.setdefault(group, {})[index] = math.nan if value is None else value
    return found


def _tells_apart(name: str, rows: Sequence[Row]) -> bool:
    if name in {"micro_batch", "optimizer_id", "model_id"}:
        return True
    return any(isinstance(row[name], str) for row in rows)


def _placed(rows: Sequence[Row], steps: Sequence[Step]) -> list[tuple[int, Row]]:
    """Say of each row in which step of the script it was; -1 for before the first.

    Rows that are as many as the steps are theirs one by one where each lies in its own. Others are
    of the step in which they end: what a script does behind its optimizer is part of the next row.
    """
    if len(rows) == len(steps) and all(
        row["start_ns"] < step.end_ns and _end(row) > step.start_ns
        for row, step in zip(rows, steps, strict=True)
    ):
        return list(enumerate(rows))
    ends = [step.end_ns for step in steps]
    placed = []
    for row in rows:
        end = _end(row)
        index = next((i for i, step_end in enumerate(ends) if end <= step_end), len(ends) - 1)
        placed.append((index if end >= steps[0].start_ns else -1, row))
    return placed


def _is_over(row: Row) -> bool:
    return row.get("duration", 0) is not None


def _end(row: Row) -> int:
    return int(row["start_ns"] + (row.get("duration_ns") or 0))


def _middle(row: Row) -> int:
    return (int(row["start_ns"]) + _end(row)) // 2


def _equal(said: Series, true: Series) -> bool:
    return bool(true) and all(
        index in said and math.isclose(said[index], value, rel_tol=1e-4, abs_tol=1e-7)
        for index, value in true.items()
    )


def _ends_with(found: str, wanted: str) -> bool:
    return found == wanted or found.endswith("." + wanted)


def _numbers(series: Series) -> str:
    return _few([f"{series[index]:.5g}" for index in sorted(series)], 6)


def _few(values: Sequence[Any], most: int) -> str:
    shown = ", ".join(str(value) for value in values[:most])
    return shown + (f", ... ({len(values)})" if len(values) > most else "") if values else "none"
