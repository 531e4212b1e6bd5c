"""One run of a history on one screen: who, how it ended, figures, and what is not kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probing.cli.render.history.kept_run import render_kept_run
from probing.cli.reports.run.kept import RunOnOneScreen, screen_of
from probing.diagnosis.runs.kept import find_kept
from probing.errors import NoSuchRun
from probing.history.export import export_process
from probing.ring.format import NULL_INT
from probing.rundir.folders import ProcessFolder
from probing.tables import TABLES_BY_NAME
from tests.harness.ring_writer import CLOCK_OFFSET_NS, RingWriter, trace_values

pytestmark = pytest.mark.anypython

Made = Callable[..., ProcessFolder]
MS = 1_000_000
STEPS, LOST = 60, 4


@pytest.fixture
def shown(ended: Made, root: Path) -> Callable[..., RunOnOneScreen]:
    """Reads a run of three ranks, of which the third is not kept, beside another run."""
    for rank in range(2):
        about = {"job": "llm", "rank": rank, "world_size": 3, "command": COMMAND}
        folder = ended(77 + rank, started_ns=CLOCK_OFFSET_NS, **about)
        record_steps(folder, 10 * (1 + rank))
        record_calls(folder)
        memory = RingWriter(TABLES_BY_NAME["memory"], capacity=64)
        memory.write(step=1, phase=4, device=1, time_ns=1, resident_bytes=(3 - rank) << 30)
        memory.save(folder.ring("memory"))
        export_process(folder, root, project="gpt")
    export_process(ended(99), root)

    def read(word: str = "llm", rank: int | None = None) -> RunOnOneScreen:
        (kept,) = find_kept(str(root), (word,), timeout_s=60, notes=[])
        return screen_of(kept, rank=rank)

    return read


COMMAND = ("python", "train.py", "--name", "a\x1b[31mb" + "x" * 200)


def record_steps(folder: ProcessFolder, ms: int) -> None:
    """Steps of so many milliseconds, half of each forwards; the 51st has no finite loss."""
    steps = RingWriter(TABLES_BY_NAME["steps"], capacity=64)
    for step in range(STEPS):
        steps.write(
            step=step,
            start_ns=step * 100 * MS,
            duration_ns=ms * MS * (50 if step < 5 else 1),
            forward_s=ms / 2e3,
            loss=math.nan if step == 51 else 9.0 - step / 10,
            tokens=100,
        )
    steps.save(folder.ring("steps"))


def record_calls(folder: ProcessFolder) -> None:
    """Calls of two modules in each of the newest steps; some had been overwritten."""
    calls = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=64)
    for number in range(64 + LOST):
        step = STEPS - (64 + LOST) // 2 + number // 2
        at = {"start_ns": step * 100 * MS + number % 2, "duration_ns": MS}
        calls.write(**{**trace_values(number), "step": step, "stage": 0, "depth": 1, **at})
    calls.save(folder.ring("torch_trace"))


def test_it_holds_all_ranks_and_the_figures_of_one(shown: Callable[..., RunOnOneScreen]) -> None:
    """Each figure is what the rings had; what is not there is named."""
    found = shown()
    assert (found.project, found.job, found.world_size) == ("gpt", "llm", 3)
    assert [one.rank for one in found.ranks] == [0, 1]
    assert found.missing_ranks == (2,)
    assert [one.steps for one in found.ranks] == [STEPS, STEPS]
    assert [one.resident_bytes for one in found.ranks] == [3 << 30, 2 << 30]
    assert {one.has_ended for one in found.ranks} == {True}
    (lost,) = found.not_kept
    assert (lost["name"], lost["overwritten"]) == ("torch_trace", 2 * LOST)


def test_speed_and_loss_are_of_the_rank_that_is_asked(
    shown: Callable[..., RunOnOneScreen],
) -> None:
    """Steps of the start are no part of the speed; a NaN is counted, and is not the lowest."""
    for rank, ms in ((None, 10), (1, 20)):
        speed = shown(rank=rank).speed
        assert speed is not None
        assert speed.steps == STEPS - 5
        assert speed.step_s == pytest.approx(ms / 1e3)
        assert speed.phases == pytest.approx({"forward": ms / 2e3, "other": ms / 2e3})
        assert speed.tokens_per_s == pytest.approx(100 / (ms / 1e3))
    loss = shown().loss
    assert loss is not None
    assert (loss.first, loss.first_step, loss.last_step, loss.not_finite) == (9.0, 0, STEPS - 1, 1)
    assert (loss.lowest_step, len(loss.curve)) == (STEPS - 1, STEPS)
    with pytest.raises(NoSuchRun, match="has no rank 2"):
        shown(rank=2)


def test_modules_are_timed_where_all_calls_are_kept(
    shown: Callable[..., RunOnOneScreen],
) -> None:
    """Over the newest steps, without those whose calls were overwritten."""
    found = shown()
    assert found.module_steps == 64 // 2
    assert {row["module"] for row in found.modules} == {"encoder", "decoder", "head"}
    assert sum(row["own_s"] for row in found.modules) > 0


def test_the_screen_is_narrow_and_safe(shown: Callable[..., RunOnOneScreen]) -> None:
    """No line but the commands to copy is wider than the screen; no word of the run steers it."""
    found = shown()
    text = render_kept_run(found, "/a b/runs", found.run, width=80, color=False)
    assert not set(text) & {chr(code) for code in range(32) if code != 10}
    lines = text.split("\n")
    assert len(lines) <= 30
    assert max(len(line) for line in lines if "probing history" not in line) <= 80, text
    for fact in (
        "2 of 3, on node1; nothing was exported of 2",
        "rank 0: 10 ms each (median of 55), 10,000 tokens/s",
        "rank 1 is slowest: 20 ms a step, 2.00 times the median rank's",
        "NaN or infinite in 1 step, first in step 51",
        "at most 3.00 GiB resident, of rank 0",
        "8 rows overwritten before they were exported: torch_trace 8",
        "probing history diff '/a b/runs' llm-",
    ):
        assert fact in text, text


def test_a_run_of_which_little_is_known_is_shown(
    shown: Callable[..., RunOnOneScreen],
) -> None:
    """Without a step there are no figures, and every line that is there is true."""
    found = shown("node1")
    assert (found.speed, found.loss, found.modules, found.of_rank) == (None, None, (), None)
    text = render_kept_run(found, "runs", found.run, width=None, color=False)
    assert "none on record" in text
    assert "every row that was recorded is kept" in text
    assert dataclasses.asdict(found)["not_kept"] == ()


@pytest.mark.parametrize(
    ("steps", "told", "words"),
    [
        ((0, 30), NULL_INT, "NaN or infinite since step 30: in 30 steps on record"),
        ((510, 510), 300, "NaN or infinite since step 300: in 60 steps on record"),
        ((510, 510), NULL_INT, "since step 510, the first on record, or longer: in 60 steps"),
    ],
)
def test_a_lost_loss_is_told_with_its_first_step(
    steps: tuple[int, int], told: int, words: str, ended: Made, root: Path
) -> None:
    """Also where that step is not on record any more, but a later one tells of it."""
    (first, lost), folder = steps, ended(started_ns=CLOCK_OFFSET_NS)
    writer = RingWriter(TABLES_BY_NAME["steps"], capacity=64)
    for step in range(first, first + 60):
        is_lost = step >= lost
        writer.write(
            step=step,
            start_ns=step * 100 * MS,
            duration_ns=10 * MS,
            loss=math.nan if is_lost else 1.0,
            not_finite_since=told if is_lost else NULL_INT,
        )
    writer.save(folder.ring("steps"))
    export_process(folder, root)
    (kept,) = find_kept(str(root), ("node1",), timeout_s=60, notes=[])
    found = screen_of(kept, rank=None)
    assert found.loss is not None
    assert found.loss.not_finite_since == (lost if told == NULL_INT else told)
    text = render_kept_run(found, "runs", found.run, width=100, color=False)
    assert words in " ".join(text.split()), text


def test_it_is_one_word_to_type(shown: Callable[..., Any], root: Path) -> None:
    """A part of a name that several runs have is told with them."""
    assert shown().run.startswith("llm-")
    with pytest.raises(NoSuchRun, match="part of the names of 2 runs"):
        find_kept(str(root), ("-",), timeout_s=60, notes=[])
