"""How busy the machine of a training is: a template of a plugin of probing.

This module is imported in the training, so it imports no more than it needs there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from probing.plugins import Action, LiveTable, Plugin, Question, RecordedTable

if TYPE_CHECKING:
    from probing.rules import Rule


def load_now() -> dict[str, Any]:
    """The row of a step: called in the training thread as each ends, so it must be quick."""
    last_minute, _, _ = os.getloadavg()
    return {"load": last_minute, "processors": os.cpu_count()}


def disks_now() -> Iterator[dict[str, Any]]:
    """The rows of a live table: computed when somebody asks."""
    for place in ("/", "/tmp", "/dev/shm"):  # noqa: S108 - looked at, never written to
        space = os.statvfs(place)
        yield {"place": place, "free_bytes": space.f_bavail * space.f_frsize}


def set_weight_decay(
    names: Mapping[str, Any], given: Mapping[str, str]
) -> Iterable[tuple[str, Any, Any]]:
    """An action: runs in the training thread between two steps."""
    changed = []
    for number, group in enumerate(names["optimizer"].param_groups):
        before, group["weight_decay"] = group["weight_decay"], float(given["value"])
        changed.append((f"weight decay of group {number}", before, group["weight_decay"]))
    return changed


def rules() -> Iterable[Rule]:
    """Rules of the doctor: called where the doctor is, and never in the training."""
    from .rules import OVERLOADED

    return [OVERLOADED]


plugin = Plugin(
    tables=(
        RecordedTable(
            name="machine_load",
            columns={"load": float, "processors": int},
            doc="How busy the machine was as each step ended.",
            each_step=load_now,
        ),
        LiveTable(
            name="disks",
            columns={"place": str, "free_bytes": int},
            doc="How much room is left.",
            compute=disks_now,
        ),
    ),
    actions=(
        Action(
            name="weight-decay",
            doc="Set the weight decay of every parameter group.",
            apply=set_weight_decay,
            parameters={"value": "0"},
        ),
    ),
    questions=(
        Question(
            name="load",
            doc="How busy was the machine in the last steps?",
            sql="SELECT step, load, processors FROM machine_load ORDER BY seq DESC LIMIT $count",
            parameters={"count": "20"},
        ),
    ),
    rules=rules,
)
