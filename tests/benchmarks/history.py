"""What a question over many kept runs takes: of one of them, and of all.

The runs are made up of one real training's rows, whose steps and durations are changed in each;
they lie as `probing history compact` leaves them, in files of 64 MiB at most.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from probing.history.files import writer_of
from tests.harness.targets import ROOT

from .measures import Measure, measure_in_turn, rounds_for
from .processes import cost_of, temporary_home, user_env

_RUNS, _RANKS = 100, 8
_ROWS = 100_000_000
"""Of modules, in all; ten times as many with `--effort 10`, for which 20 GB have to be free."""
_FEWEST_STEPS = 4
_STEPS = 1000
"""Of the training whose rows they are."""
_RUNS_A_DAY = 3
_BYTES_A_ROW, _MOST_BYTES = 17, 64 << 20
"""By the second a compaction ends a file."""
_FIRST_DAY = date(2026, 1, 1)
_SMALL = (
    "--dim=32",
    "--batch=2",
    "--context=16",
    "--workers=0",
    "--threads=1",
    "--warmup=1",
    "--checkpoint-every=0",
)
_MEMORY_MIB = "16000"
"""For the median of all runs, which keeps every value; the others take less than the usual."""
_EACH = "GROUP BY ALL"
_MEDIAN = "SELECT module, stage, median(duration) FROM torch_trace"
_ESTIMATE = "SELECT module, stage, reservoir_quantile(duration, 0.5, 8192) FROM torch_trace"
_LONGEST = "SELECT run, count(*), max(duration) FROM torch_trace"


def measure(effort: float) -> Iterator[Measure]:
    """Over 100 runs of 8 ranks."""
    with temporary_home() as home, tempfile.TemporaryDirectory(prefix="probing-") as folder:
        trace, process = _rows_of_a_training(home, Path(folder), effort)
        place = Path(folder) / "history"
        rows = _make_runs(place, trace, process, round(_ROWS * effort))
        ask = [sys.executable, "-m", "probing", "history", "query", str(place), "--timeout=600"]
        run = _run_name(_RUNS // 2)
        commands = {
            "a median per module of one run, by --run": (*ask, "--run", run, f"{_MEDIAN} {_EACH}"),
            "a median per module of one run, by WHERE": (
                *ask,
                f"{_MEDIAN} WHERE run = '{run}' {_EACH}",
            ),
            "a median per module of all runs": (*ask, f"{_MEDIAN} {_EACH}"),
            "the same, estimated": (*ask, f"{_ESTIMATE} {_EACH}"),
            "the longest call of each run": (*ask, f"{_LONGEST} GROUP BY run"),
        }
        musts = (1.0, 1.0, 30.0, 30.0, 30.0)
        env = {**user_env(home), "PROBING_QUERY_MEMORY_MIB": _MEMORY_MIB}
        starts = [functools.partial(cost_of, argv, env) for argv in commands.values()]
        found = measure_in_turn(rounds_for(5, min(effort, 1.0)), *starts)
    for what, must, costs in zip(commands, musts, found, strict=True):
        whole = f"{what}, of {rows:,} rows"
        yield Measure(what=whole, unit="s", values=tuple(cost.wall for cost in costs), must=must)
        peaks = tuple(cost.peak_mib for cost in costs)
        yield Measure(what=f"{what}, at most resident", unit="MiB", values=peaks)


def _rows_of_a_training(home: Path, folder: Path, effort: float) -> tuple[pa.Table, pa.Table]:
    """What a real training left in `torch_trace` and `processes`."""
    env = {**user_env(home), "PROBING": "1"}
    steps = max(_FEWEST_STEPS, round(_STEPS * min(1.0, effort)))
    script = str(ROOT / "examples" / "train_gpt.py")
    words = [sys.executable, script, f"--steps={steps}", *_SMALL]
    with subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, cwd=folder) as training:
        if training.wait():
            raise RuntimeError(f"the training ended with {training.returncode}")
    kept = folder / "kept"
    export = [sys.executable, "-m", "probing", "export", str(training.pid), str(kept)]
    subprocess.run(export, env=env, check=True, stdout=subprocess.DEVNULL)
    found = []
    for table in ("torch_trace", "processes"):
        (path,) = kept.glob(f"project=*/job=*/table={table}/day=*/*.parquet")
        found.append(pq.read_table(path, partitioning=None).replace_schema_metadata(None))
    return found[0], found[1]


def _run_name(number: int) -> str:
    """What one of the runs is called."""
    return f"run-{number:04d}"


def _make_runs(place: Path, trace: pa.Table, process: pa.Table, rows: int) -> int:
    """Make all of them; returns how many rows of modules there are."""
    pieces = max(1, round(rows / (_RUNS * _RANKS * trace.num_rows)))
    at_once = max(1, min(_RANKS, _MOST_BYTES // (_BYTES_A_ROW * pieces * trace.num_rows)))
    for number in range(_RUNS):
        day = _FIRST_DAY + timedelta(days=number // _RUNS_A_DAY)
        job = place / "project=train_gpt" / f"job=job-{number:04d}"
        run = _run_name(number)
        ranks = [_named(process, run, rank) for rank in range(_RANKS)]
        _write(job, "processes", day, 0, ranks)
        for first in range(0, _RANKS, at_once):
            some = itertools.chain.from_iterable(
                _rows_of_a_rank(_named(trace, run, rank), 1.0 + 0.001 * number, pieces)
                for rank in range(first, min(_RANKS, first + at_once))
            )
            _write(job, "torch_trace", day, first, some)
    return _RUNS * _RANKS * pieces * int(trace.num_rows)


def _rows_of_a_rank(rows: pa.Table, factor: float, pieces: int) -> Iterator[pa.Table]:
    """The same rows again and again, of later steps and as many times slower."""
    rows = _with(rows, "duration", pc.multiply(rows["duration"], factor))
    steps = pc.max(rows["step"]).as_py()
    for piece in range(pieces):
        yield _with(rows, "step", pc.add(rows["step"], piece * steps))


def _write(job: Path, table: str, day: date, rank: int, pieces: Iterable[pa.Table]) -> None:
    """Write a file of rows as a compaction does."""
    path = job / f"table={table}" / f"day={day}" / f"merged-{rank:016x}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = None
    with path.open("wb") as file, contextlib.ExitStack() as stack:
        for piece in pieces:
            writer = writer or stack.enter_context(writer_of(file, piece.schema))
            writer.write_table(piece)


def _named(rows: pa.Table, run: str, rank: int) -> pa.Table:
    """The same rows of a rank of a run."""
    count = rows.num_rows
    named = _with(rows, "run", pa.array([run] * count, pa.string()))
    return _with(named, "rank", pa.array([rank] * count, pa.int64()))


def _with(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    """The rows with other values in one column."""
    place = rows.schema.get_field_index(column)
    return rows.set_column(place, rows.schema.field(place).with_type(values.type), values)
