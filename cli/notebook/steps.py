"""The newest steps as curves: the loss, the gradients' norm, what the time went for, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import units
from ...client.recent_steps import PHASES
from .html import details, paragraphs
from .pictures import areas, curve
from .rows import table_html

if TYPE_CHECKING:
    from ...api.steps import Steps

_ROWS = 20


def steps_html(steps: Steps) -> str:
    """The curves of what is known, and behind a line the rows."""
    found: dict[str, list[Any]] = steps.to_arrow().to_pydict()
    at = found["step"]
    if not at:
        return paragraphs([f"no step of {steps.label} is on record"])
    phases = {name.replace("_", " "): found.get(f"{name}_s", []) for name in PHASES}
    nothing = [None] * len(at)
    parts = [
        curve("loss", at, found.get("loss", nothing)),
        curve("norm of the gradients", at, found.get("grad_norm", nothing)),
        areas("time of a step", at, {n: v or nothing for n, v in phases.items()}, units.duration),
        curve("allocated on devices", at, found.get("allocated_bytes", nothing), units.size),
    ]
    known = [name for name, values in found.items() if any(v is not None for v in values)]
    newest = steps.to_arrow().select(known).slice(max(0, len(at) - _ROWS))
    return "".join(parts) + details(f"the last {newest.num_rows:,} rows", table_html(newest))
