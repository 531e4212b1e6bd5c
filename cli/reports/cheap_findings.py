"""What the record of a process alone shows to be wrong with it.

Rules of this file: the doctor's rules, those that neither wait nor ask the process anything. What a
rule cannot judge by the record is left out: `doctor` says what was not looked at.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, NamedTuple

from ...cluster.job.membership import member_of

if TYPE_CHECKING:
    from ...client.base import Process
    from ...diagnosis.doctor.findings import Finding
    from ...messages.card import Card

WITHIN_S = 2.0


class Found(NamedTuple):
    """What was found.

    Attributes:
        findings: The gravest first.
        judged: How many rules could be judged.
        late: For how many there was no time. A rule that goes by what only a process tells that
            runs is none of these, nor of those.
        late_subjects: What these look at, the gravest first.
        statements: What the record was asked.
    """

    findings: tuple[Finding, ...] = ()
    judged: int = 0
    late: int = 0
    late_subjects: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()


def find_cheaply(process: Process, card: Card, *, within_s: float = WITHIN_S) -> Found:
    """Judge what can be judged by the record, the gravest first.

    Args:
        within_s: Nothing more of the record is read after that.
    """
    from ...diagnosis.doctor.effects import without_effects
    from ...diagnosis.doctor.facts import Facts
    from ...diagnosis.doctor.findings import ABOUT_NOW, finding_of, gravest_first
    from ...diagnosis.doctor.rules import RULES
    from ...diagnosis.doctor.turns.judging import run

    end = time.monotonic() + within_s
    is_alive = process.folder is None or process.folder.is_alive()
    member = member_of(card, process.label, is_alive=is_alive)
    facts = Facts(process, member, None, live_s=0.0)
    facts.leave_out_steps_since(time.perf_counter_ns())
    rules = [rule for rule in RULES if not rule.cost_s and rule.group not in ABOUT_NOW]
    facts.prepare(sql for rule in rules for sql in rule.asks)
    found: list[Finding] = []
    judged, late = 0, list[str]()
    for rule in gravest_first(rules):
        facts.is_closed, facts.has_refused = time.monotonic() > end, False
        signs, why = run(functools.partial(rule.look, facts))
        if facts.has_refused:
            late.append(rule.subject)
            continue
        judged += bool(signs) or why is None
        told = functools.partial(finding_of, rule, asked=process.label, is_alive=is_alive)
        found += [told(sign) for sign in signs]
    found = without_effects(found)
    ordered = tuple(sorted(found, key=lambda finding: finding.order))
    return Found(ordered, judged, len(late), tuple(dict.fromkeys(late)), facts.statements)
