"""What a doctor who watches leaves in a file for a node server: which findings stand now."""

from __future__ import annotations

from typing import Literal

from ..frozen import dataclass

Certainty = Literal["certain", "likely", "possible"]
CERTAINTIES: dict[Certainty, str] = {
    "certain": "It is on record or was counted, and has no other reading.",
    "likely": "It was measured, and healthy trainings do not look like this; another cause can"
    " be thought of.",
    "possible": "Something stands out that may be meant so: worth one look.",
}
"""What each certainty promises, the surest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingFinding:
    """One that has begun, and is not over.

    Attributes:
        whole: The job, or else the process, that it was found in.
        members: Whom of these it is about, by their names; none where it is about all.
        summary: It in one sentence.
        began_s: When it was first seen, since the epoch.
    """

    rule: str
    certainty: str
    whole: str
    members: tuple[str, ...]
    summary: str
    began_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All of them after a look.

    Attributes:
        time_s: When that was, since the epoch.
        until_s: Until when it holds, where no look follows.
    """

    time_s: float
    until_s: float
    findings: tuple[StandingFinding, ...]
