"""What came of attaching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import duration

if TYPE_CHECKING:
    from ....attach.attach import Attached


def render_attached(attached: Attached) -> str:
    """What happened, and what comes now, in a sentence."""
    who = f"process {attached.pid}"
    if attached.method is None:
        return f"{who} has an agent already"
    recording = (
        "what it trains is recorded from the next step on"
        if attached.has_torch
        else "it has not imported torch; what it trains is recorded once it has"
    )
    took, held = duration(attached.seconds), duration(attached.held_s)
    how = f"by {attached.method} in {took}, held for {held}"
    return f"the agent is in {who} ({how}); {recording}"
