"""Verdicts that commands add to their tables, from figures made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from probing.cli.render.process.status import render_status
from probing.cli.render.training.gradients import render_gradients
from probing.cli.reports.overview import Overview
from probing.cli.reports.run.report import _facts
from probing.cli.reports.status_report import SourceStatus, StatusReport
from probing.messages.card import Card

pytestmark = pytest.mark.anypython


CARD = Card(
    pid=1, start_time=1, boot_id="", pid_namespace=0, uid=0, host="here",
    command=("python", "train.py"), executable="", python="", version="", started_ns=0,
    rank=None, local_rank=None, world_size=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("share", "limit", "says"),
    [
        (0.004, 0.01, "0.4 %, within the limit of 1 % (estimated from the last 9 steps)"),
        (
            0.031,
            0.01,
            "3.1 %, more than the limit of 1 % (estimated from the last 9 steps)"
            "; most of that for memory",
        ),
        (0.031, None, "3.1 %, more than the default limit of 1 %"),
        (0.004, None, "0.4 %, within the default limit of 1 %"),
        (1.25, 10_000.0, "120 %, within the limit of 1,000,000 %"),
    ],
)
def test_the_cost_stands_beside_its_limit(share: float, limit: float | None, says: str) -> None:
    """Within the limit says so, beyond it what is dearest; of ended runs the default is known."""
    sources = tuple(
        SourceStatus(source=name, state="on", table=name, cost_s=cost_s, faults=0, note=None,
                     rows=0, dropped=0)
        for name, cost_s in (("modules", 0.0002), ("memory", 0.0008), ("marks", None))
    )  # fmt: skip
    report = StatusReport(
        card=CARD, sources=sources, silence=None, steps=9, cost_s=0.001, share=share, limit=limit
    )
    assert says in render_status(report, width=None, color=False)
    early = dataclasses.replace(report, steps=0, cost_s=None, share=None, passes=1700)
    words = render_status(early, width=None, color=False)
    assert "no training step has ended after 1,700 backward passes: as their gradients" in words
    served = render_status(dataclasses.replace(early, passes=0, calls=40), width=None, color=False)
    assert "no training is seen: each of its 40 steps on record is a call of a model" in served


@pytest.mark.parametrize(
    ("rank", "ranks", "says"),
    [(None, None, "1 on here"), (3, None, "1, rank 3 on here"), (3, 8, "1, rank 3 of 8 on here")],
)
def test_a_rank_is_one_of_so_many_as_are_known(
    rank: int | None, ranks: int | None, says: str
) -> None:
    """Where RANK is set, WORLD_SIZE need not be."""
    card = dataclasses.replace(CARD, rank=rank, world_size=ranks)
    report = StatusReport(card=card, sources=None, silence=None, steps=0, cost_s=None, share=None)
    assert render_status(report, width=None, color=False).startswith(f"process {says}: python")
    seen = Overview(
        endpoint="1", pid=1, host="here", command="", rank=rank, world_size=ranks, state="training"
    )
    assert dict(_facts(seen)).get("rank", "") == says[len("1, rank ") : -len(" on here")]


def _row(norm: float) -> dict[str, Any]:
    figures = dict.fromkeys(("max_abs", "zero_share", "weight_norm", "update_ratio"), 0.0)
    return {"step": 7, "parameter": "w", "norm": norm, "nan_count": 0, "inf_count": 0,
            "numel": 4, **figures}  # fmt: skip


@pytest.mark.parametrize(
    ("norms", "usual", "says", "advises"),
    [
        ((3.0, 4.0), 5.0, "all together: norm 5 in step 7, 1 times the median", ""),
        ((30.0, 40.0), 45.0, "norm 50", "most trainings stay below 10"),
        ((3.0, 4.0), 0.1, "50 times the median", "far too large"),
        ((300.0,), None, "all together: norm 300 in step 7", "far too large"),
    ],
)
def test_all_gradients_together_are_judged(
    norms: tuple[float, ...], usual: float | None, says: str, advises: str
) -> None:
    """By themselves, and by what they were in the steps before; what is usual gets no advice."""
    rows = [_row(norm) for norm in norms]
    shown = render_gradients(rows, most=30, width=None, color=False, usual_norm=usual)
    assert says in shown
    assert advises in shown
    if not advises:
        assert "large" not in shown


@pytest.mark.parametrize(
    ("before", "usual", "says", "is_large"),
    [
        (400.0, 450.0, "all together: norm 400 before clipping in step 7, 0.89 times", False),
        (7000.0, 8.0, "norm 7,000 before clipping in step 7, 880 times the median", True),
    ],
    ids=["as ever", "explodes"],
)
def test_gradients_that_the_script_clips_are_judged_by_what_they_were_before(
    before: float, usual: float, says: str, is_large: bool
) -> None:
    """However large they are where they always were so; and nobody is told to clip once more."""
    rows = [_row(1.0) | {"unclipped_norm": before}]
    shown = render_gradients(rows, most=30, width=None, color=False, usual_norm=usual)
    assert says in shown
    assert "before clipping" in shown.splitlines()[0]
    assert ("far too large: lower the rate" in shown) is is_large
    assert is_large or "large" not in shown
