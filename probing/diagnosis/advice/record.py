"""One piece of advice.

Rules of this file: nothing imported but the standard library.
"""

from __future__ import annotations

from ...messages.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do, and what speaks for it.

    Attributes:
        rule: The name of the rule that gave it.
        action: What to do.
        evidence: What was seen that speaks for it, in figures.
    """

    rule: str
    action: str
    evidence: str
