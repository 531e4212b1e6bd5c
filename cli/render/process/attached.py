"""What came of attaching."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    how = (
        f"by {attached.method} in {attached.seconds:.2f} s, held for {1e3 * attached.held_s:.1f} ms"
    )
    return f"the agent is in {who} ({how}); {recording}"
