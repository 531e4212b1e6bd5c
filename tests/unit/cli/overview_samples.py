"""Processes on one screen and jobs as grids, made by hand, as the renderers get them."""

from __future__ import annotations

import dataclasses
import math

from probing.cli.render.process.overview import render_overview
from probing.cli.render.ranks.grid import render_grid
from probing.cli.reports.overview import Overview
from probing.cli.reports.overview_memory import MemoryUse
from probing.cli.reports.overview_ranks import RankStates
from probing.cli.reports.rank_grid import GridCell, RankGrid
from probing.client.recent_steps import STILL, Pace
from probing.diagnosis.doctor.findings import Certainty, Finding
from probing.postmortem.not_finite import NotFinite

GIB = 1 << 30


def _finding(certainty: Certainty, summary: str) -> Finding:
    return Finding(
        rule="made-up",
        group="slow",
        certainty=certainty,
        summary=summary,
        since_step=None,
        evidence=(),
        next="probing 4242 dataloaders",
        fix="",
    )


PACE = Pace(
    step=12345,
    age_s=0.2,
    counted=100,
    step_s=0.25,
    tokens_per_s=16384.0,
    samples_per_s=32.0,
    losses=tuple(2.5 / (1 + step / 40) for step in range(399)),
    first_step=11946,
    phases={
        "data_wait": 0.12,
        "forward": 0.04,
        "backward": 0.07,
        "optimizer": 0.004,
        "other": 0.016,
    },
    device_s=0.11,
)
MODULES = tuple(
    {"module": f"transformer.h.{n}.attn.very_long_name.c_proj", "class": "Linear", "model": "model",
     "models": 1, "calls": 20, "own_s": 0.01 / (n + 1), "share": 0.04 / (n + 1)}
    for n in range(5)
)  # fmt: skip
HEALTHY = Overview(
    endpoint="4242",
    pid=4242,
    host="node1",
    command="python train.py --lr 3e-4 --name \x1b[31m" + "long" * 30,
    rank=0,
    world_size=8,
    state="training",
    pace=PACE,
    memory=MemoryUse(
        resident=4 * GIB, group=29 * GIB, limit=32 * GIB, is_group=True, device=70 * GIB,
        device_limit=80 * GIB,
    ),
    modules=MODULES,
    ranks=RankStates(
        expected=8,
        by_state=(("training", (0, 1, 2, 4, 5, 6)), ("missing", (3,)), ("dead", (7,))),
        steps=(12343, 12345),
    ),
    findings=(
        _finding("certain", "The training waits for its data: 48 % of each step; loader 0 of"
                 " Photos: no workers, so that each batch is made by the training thread"),
        _finding("likely", "The learning rate has been 0 since step 12,000"),
        _finding("possible", "Steps take 1.6 times as long since step 12,002 (150 ms before, 250 ms"
                 " since), most of it in the wait for data"),
        _finding("possible", "Something else"),
    ),
    judged=30,
)  # fmt: skip
HUNG = dataclasses.replace(
    HEALTHY,
    endpoint="rank:0",
    state=STILL,
    pace=dataclasses.replace(
        PACE, age_s=252.0, losses=(*PACE.losses[:390], None, *(math.nan,) * 8)
    ),
    not_finite=NotFinite(step=12337, was_nan=True, is_nan=True, is_whole=True),
    findings=(),
)
DEAD = dataclasses.replace(
    HEALTHY,
    state="dead",
    problems=(
        "It ended with an unhandled RuntimeError: mat1 and mat2 shapes cannot be multiplied.",
    ),
    memory=MemoryUse(resident=4 * GIB, is_old=True),
    ranks=None,
    rank=None,
    findings=(),
)
NO_AGENT = Overview(
    endpoint="77",
    pid=77,
    host="",
    command="python train.py",
    rank=None,
    world_size=None,
    state="no agent",
    memory=MemoryUse(resident=GIB, limit=64 * GIB),
    has_torch=True,
)
NO_STEPS = dataclasses.replace(NO_AGENT, host="node1", state="idle", has_torch=None)


def _cell(rank: int, *, ranks: int) -> GridCell:
    is_odd = rank == ranks - 2
    return GridCell(
        name=f"rank {rank}",
        rank=rank,
        job="big",
        host=f"node{rank // 8}",
        pid=1000 + rank,
        state="not answering" if is_odd else "dead" if rank == ranks - 1 else "training",
        step=100 - (7 if rank == 1 else 0) if not is_odd else 90,
        duration_s=0.25 + rank / 1000,
        data_wait_s=0.02,
        sync_s=None if rank == 1 else 0.1,
        loss=2.125,
        target=f"job:big/rank:{rank}",
    )


def draw_screen(overview: Overview, width: int, *, color: bool = False) -> str:
    """A process as the command draws it."""
    return render_overview(overview, width=width, color=color)


def draw_grid(ranks: int, width: int = 80, *, color: bool = False) -> str:
    """A job of so many ranks, the last two odd."""
    cells = tuple(_cell(rank, ranks=ranks) for rank in range(ranks))
    grid = RankGrid(label="job big", expected=ranks, cells=cells)
    return render_grid(grid, asked="-t all", width=width, color=color)


SCREENS = {"healthy": HEALTHY, "hung": HUNG, "dead": DEAD, "no_agent": NO_AGENT, "idle": NO_STEPS}
