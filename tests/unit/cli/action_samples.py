"""Actions and a checkpoint, made up for the renderers."""

from __future__ import annotations

import dataclasses

from probing.cli.render.process.actions import render_act, render_acts, render_together
from probing.cli.render.training.checkpoint import render_checkpoint
from probing.diagnosis.checkpoints import CheckpointContent, Entry
from probing.messages.about.act import Act, Change

_SCALED = Act(
    number=1,
    name="lr",
    arguments="scale=0.1",
    who="uid 1000, pid 4242",
    state="done",
    step=148,
    changes=(
        Change(what="lr of groups 0, 1", before="0.001", after="0.0001"),
        Change(what="base_lrs of LambdaLR, of groups 0, 1", before="0.001", after="0.0001"),
    ),
    notes=(),
    waited_s=0.02,
    pause_s=0.000164,
    age_s=65.0,
    undo=True,
)
_CLIPPED = Act(
    number=2,
    name="clip",
    arguments="max_norm=1.0",
    who="10.0.0.7",
    state="in force",
    step=150,
    changes=(Change(what="gradient norm is clipped to", before=None, after="1"),),
    notes=("the script itself clips to 5 before that",),
    waited_s=0.01,
    pause_s=1.5,
    age_s=4.0,
    undo=True,
)
_WAITING = Act(
    number=3,
    name="cleanup",
    arguments="",
    who="uid 1000, pid 4243",
    state=None,
    step=None,
    changes=(),
    notes=(),
    waited_s=None,
    pause_s=None,
    age_s=0.5,
    undo=False,
)
_CONTENT = CheckpointContent(
    step=361,
    bytes=3_640,
    keys=("step", "model", "config"),
    entries=(
        Entry(key="step", kind="int", value="361"),
        Entry(
            key="model.head.weight", kind="tensor", dtype="float32", shape=(14, 64), bytes=3_584,
            not_finite=3,
        ),
        Entry(key="model.scale", kind="tensor", dtype="bfloat16", shape=(), bytes=2, not_finite=0),
        Entry(key="model.table", kind="tensor", dtype="float8_e4m3fn", shape=(54,)),
        Entry(key="config", kind="thing", value="train.Config"),
    ),
    unknown=("train.Config",),
)  # fmt: skip


def draw_act() -> str:
    """One action."""
    return render_act(_SCALED)


def draw_act_of_ranks() -> str:
    """One action on ranks that count their steps differently, and one that has nothing to do."""
    later = dataclasses.replace(_SCALED, step=31, pause_s=0.0025)
    idle = dataclasses.replace(_SCALED, changes=(), undo=False)
    return render_together({0: _SCALED, 1: later, 2: _SCALED, 3: idle})


def draw_acts(width: int = 140) -> str:
    """Several, on a wide screen."""
    return render_acts([_SCALED, _CLIPPED, _WAITING], width=width)


def draw_checkpoint() -> str:
    """A checkpoint with values that are not finite, and some that cannot be read."""
    return render_checkpoint(_CONTENT, width=100)
