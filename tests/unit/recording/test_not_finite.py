"""Since when a loss has not been finite, from rows made by hand; and how to start again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from probing.agent.sources.steps.rows.loss_columns import Since
from probing.diagnosis.hang.seen.record import _STEPS
from probing.diagnosis.restarting import _line_with
from probing.postmortem.not_finite import SINCE, peek_since, since_of
from probing.ring.arrow_tables import RecordedTable
from probing.ring.format import NULL_FLOAT, NULL_INT
from probing.rundir.folders import ProcessFolder
from probing.sql.engine import Engine
from probing.tables import MICRO_BATCHES, STEPS
from tests.harness.ring_writer import RingWriter
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], None),
        ([(3, 0.5)], None),
        ([(3, 0.5), (4, NAN)], "the loss has been NaN since step 4"),
        ([(3, 0.5), (6, INF)], "the loss has been infinite since step 6"),
        ([(9, NAN), (10, NAN)],
         "the loss has been NaN since step 9, the first on record, or longer"),
        ([(3, 0.5), (4, INF), (9, NAN)],
         "the loss has not been finite since step 4: infinite there, NaN now"),
    ],
)  # fmt: skip
def test_the_first_step_after_the_last_good_one_is_told(
    rows: list[tuple[int, float]], sentence: str | None
) -> None:
    """A finite newest loss is no finding; without a finite one on record, that is said."""
    found = since_of([{"step": step, "loss": loss} for step, loss in rows])
    assert (None if found is None else found.sentence()) == sentence


def test_the_first_bad_step_outlives_its_row() -> None:
    """Each row since then names it, so that the number does not move with the ring."""
    found = since_of([{"step": step, "loss": NAN, "not_finite_since": 4} for step in (9000, 9001)])
    assert found is not None
    assert found.sentence() == "the loss has not been finite since step 4: NaN now"


@pytest.mark.parametrize(
    ("losses", "capacity", "sentence"),
    [
        ([0.5, NAN, NAN, NAN], 8, "the loss has been NaN since step 1"),
        ([0.5, INF, NAN, NAN], 8,
         "the loss has not been finite since step 1: infinite there, NaN now"),
        ([0.5, INF, NAN, NAN], 2, "the loss has not been finite since step 1: NaN now"),
        ([NAN, NAN, 0.5], 8, None),
    ],
)  # fmt: skip
def test_the_file_and_sql_say_the_same(
    losses: list[float], capacity: int, sentence: str | None, tmp_path: Path
) -> None:
    """Each names the kind of the first bad step and that of the newest, where both are there."""
    writer = RingWriter(STEPS, capacity=capacity)
    since = Since()
    for step, loss in enumerate(losses):
        is_finite = math.isfinite(loss)
        told = since.at(step, is_finite=is_finite)
        writer.write(step=step, loss=loss, loss_finite=is_finite, not_finite_since=told)
    folder = ProcessFolder(path=tmp_path, pid=1, start_time=1)
    writer.save(folder.ring("steps"))
    peeked = peek_since(folder)
    assert peeked == since_of(_answered(folder, SINCE))
    assert (None if peeked is None else peeked.sentence()) == sentence


@pytest.mark.parametrize(
    ("each", "ended", "losses", "sentence"),
    [
        (1, [0.5, 0.4], [NAN] * 9, "the loss has been NaN since step 2"),
        (1, [0.5, 0.4], [0.3, INF, NAN, NAN],
         "the loss has not been finite since step 2: infinite there, NaN now"),
        (1, [0.5, 0.4], [NAN] * 9 + [None] * 900, "the loss has been NaN since step 2"),
        (1, [], [NAN] * 9, "the loss has been NaN since step 0"),
        (1, [0.5, NAN], [NAN] * 9, "the loss has been NaN since step 1"),
        (1, [0.5, 0.4], [NAN] * 2, None),  # a bad batch or two
        (4, [0.5, 0.4], [NAN] * 11, None),
        (4, [0.5, 0.4], [NAN] * 12, "the loss has been NaN since step 2"),
        (1, [0.5, 0.4], [*[NAN] * 9, 0.3], None),  # it has come back
        (1, [0.5, 0.4], [None] * 90, None),
        (1, [0.5, 0.4], [], None),
    ],
)  # fmt: skip
def test_losses_of_a_step_that_never_ends_count(
    each: int,
    ended: list[float],
    losses: list[float | None],
    sentence: str | None,
    tmp_path: Path,
) -> None:
    """As where a gradient scaler leaves out every step: the file and SQL say the same."""
    steps, batches = RingWriter(STEPS, capacity=8), RingWriter(MICRO_BATCHES, capacity=1024)
    for step, loss in enumerate(ended):
        steps.write(step=step, loss=loss, loss_finite=math.isfinite(loss), micro_batches=each,
                    not_finite_since=NULL_INT if math.isfinite(loss) else step,
                    duration_ns=5)  # fmt: skip
        for number in range(each):
            batches.write(step=step, micro_batch=number, loss=loss)
    steps.open(step=len(ended))
    for number, one in enumerate(losses):
        batches.write(step=len(ended), micro_batch=number, loss=NULL_FLOAT if one is None else one)
    folder = ProcessFolder(path=tmp_path, pid=1, start_time=1)
    for writer, table in ((steps, STEPS), (batches, MICRO_BATCHES)):
        writer.save(folder.ring(table.name))
    peeked, answer = peek_since(folder), _answered(folder, SINCE)
    assert peeked == since_of(answer)
    assert (None if peeked is None else peeked.sentence()) == sentence
    (row,) = _answered(folder, _STEPS)
    assert row["not_finite"] == (None if sentence is None else len(ended))


def _answered(folder: ProcessFolder, sql: str) -> list[dict[str, Any]]:
    """What a record says."""
    tables = [RecordedTable(table, folder) for table in (STEPS, MICRO_BATCHES)]
    found: list[dict[str, Any]] = Engine(tables).run(sql, timeout_s=DEADLINE_S).to_pylist()
    return found


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ([(0, True), (1, False), (2, False)], [None, 1, 1]),
        ([(0, False), (1, True), (2, False), (3, False)], [0, None, 2, 2]),
        ([(5, False), (4, True), (6, False)], [5, None, 5]),
        ([(5, False), (4, False), (6, False)], [5, 4, 4]),
        ([(5, True), (4, False), (6, False)], [None, None, 6]),
    ],
)
def test_steps_may_be_known_in_another_order(
    seen: list[tuple[int, bool]], told: list[int | None]
) -> None:
    """What a device tells late counts for its own step."""
    since = Since()
    found = [since.at(step, is_finite=is_finite) for step, is_finite in seen]
    assert [None if step == NULL_INT else step for step in found] == told


@pytest.mark.parametrize(
    ("source", "words", "line"),
    [
        ('parser.add_argument("--resume")', ["--lr", "1"], "--lr 1 --resume ck.pt"),
        ('add("--ckpt", default=None)', ["--ckpt", "old.pt"], "--ckpt ck.pt"),
        ('add("--ckpt")', ["--ckpt=old.pt", "-v"], "-v --ckpt ck.pt"),
        ('add("--ckpt")', ["--api-key", "s3", "--hf_token=s3"],
         "--api-key '***' '--hf_token=***' --ckpt ck.pt"),
        ("print(1)", [], None),
        ('add("--resume"); add("--load")', [], None),
    ],
)  # fmt: skip
def test_the_way_back_is_the_command_with_its_own_option(
    source: str, words: list[str], line: str | None, tmp_path: Path
) -> None:
    """The option is the one that the script itself has, none is guessed, and no secret is told."""
    script = tmp_path / "train.py"
    script.write_text(source, encoding="utf-8")
    found: Any = _line_with(("python", str(script), *words), "ck.pt")
    assert found == (None if line is None else f"python {script} {line}")
