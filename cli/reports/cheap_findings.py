"""What the record of a process alone shows to be wrong with it.

Rules of this file: the doctor's rules, those that neither wait nor ask the process anything. What a
rule cannot judge by the record is left out: `doctor` says what was not looked at.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, NamedTuple

from ...cluster.job.membership import member_of
from ...errors import ProbingError

if TYPE_CHECKING:
    from ...client.base import Process
    from ...diagnosis.doctor.facts import Facts
    from ...diagnosis.doctor.findings import Finding, Rule, Sign
    from ...messages.card import Card

WITHIN_S = 2.0


class Found(NamedTuple):
    """What was found.

    Attributes:
        findings: The gravest first.
        judged: How many rules could be judged.
        late: For how many there was no time.
        statements: What the record was asked.
    """

    findings: tuple[Finding, ...] = ()
    judged: int = 0
    late: int = 0
    statements: tuple[str, ...] = ()


def find_cheaply(process: Process, card: Card, *, within_s: float = WITHIN_S) -> Found:
    """Judge what can be judged by the record.

    Args:
        within_s: No further rule is begun after that.
    """
    from ...diagnosis.doctor.effects import without_effects
    from ...diagnosis.doctor.facts import Facts
    from ...diagnosis.doctor.findings import ABOUT_NOW, finding_of
    from ...diagnosis.doctor.rules import RULES

    end = time.monotonic() + within_s
    is_alive = process.folder is None or process.folder.is_alive()
    member = member_of(card, process.label, is_alive=is_alive)
    facts = Facts(process, member, None, live_s=0.0)
    facts.leave_out_steps_since(time.perf_counter_ns())
    rules = [rule for rule in RULES if not rule.cost_s and rule.group not in ABOUT_NOW]
    facts.prepare(sql for rule in rules for sql in rule.asks)
    found: list[Finding] = []
    judged = late = 0
    for rule in rules:
        if time.monotonic() > end:
            late += 1
            continue
        signs = _signs(rule, facts)
        judged += signs is not None
        told = functools.partial(finding_of, rule, asked=process.label, is_alive=is_alive)
        found += [told(sign) for sign in signs or ()]
    found = without_effects(found)
    ordered = tuple(sorted(found, key=lambda finding: finding.order))
    return Found(ordered, judged, late, facts.statements)


def _signs(rule: Rule, facts: Facts) -> list[Sign] | None:
    """What a rule finds; None where the record is not enough."""
    from ...diagnosis.doctor.not_looked_at import NotLookedAt

    found: list[Sign] = []
    try:
        for sign in rule.look(facts):
            found.append(sign)  # noqa: PERF402 - what came before an error counts
    except (NotLookedAt, ProbingError):
        return found or None
    return found
