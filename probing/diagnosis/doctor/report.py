"""What the doctor says of a process or a job.

Rules of this file: a record; how it comes about, `examine` knows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ...messages.frozen import InNotebooks, dataclass
from .findings import Finding, Rule
from .not_looked_at import ENDED, LATE
from .ranks.job_rules import JOB_RULES
from .rules import RULES

ALL_RULES: tuple[Rule, ...] = (*RULES, *(one.rule for one in JOB_RULES))
"""Those and the rules about ranks."""
_TOLD = ("rule", "certainty", "summary", "since_step", "evidence", "next", "fix", "source", "who")
"""What is told of a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLooked:
    """Something that could not be judged.

    Attributes:
        rules: The names of the rules.
        why: The reason, a clause.
    """

    rules: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(InNotebooks):
    """What is wrong with a process or a job.

    Attributes:
        findings: The gravest first.
        healthy: Subjects all of whose rules were judged, and found nothing.
        not_looked_at: What was not judged, and why.
        about: Whom it is about, in a few words.
        steps: How many steps were looked at, the newest ones, at most of all ranks.
        seconds: How long the looks took.
        has_ended: Whether nothing of it runs any more.
        notes: What the reader should know.
        processes: How many it is about.
        missed_of: The names of the rules that were not judged, by `Finding.whole`; empty sets of
            those where all were.
    """

    findings: tuple[Finding, ...]
    healthy: tuple[str, ...]
    not_looked_at: tuple[NotLooked, ...]
    about: str
    steps: int
    seconds: float
    has_ended: bool = False
    notes: tuple[str, ...] = ()
    processes: int = 1
    missed_of: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)

    @property
    def judged(self) -> frozenset[str]:
        """The names of our rules that were judged."""
        missed = {name for one in self.not_looked_at for name in one.rules}
        return frozenset(rule.name for rule in ALL_RULES) - missed

    @property
    def looked(self) -> tuple[int, int]:
        """How many rules for one process were judged, and how many there are for such a one."""
        moot = {n for one in self.not_looked_at if one.why.startswith(ENDED) for n in one.rules}
        of_one = {rule.name for rule in RULES} - moot
        return len(self.judged & of_one), len(of_one)

    @property
    def was_late(self) -> bool:
        """Whether there was no time for some of what it looks at."""
        return any(one.why.startswith(LATE) for one in self.not_looked_at)

    @property
    def is_blind(self) -> bool:
        """Whether nothing was found because there was no time to look, or nobody to look at."""
        of_one = {rule.name for rule in RULES}
        late = {n for one in self.not_looked_at if one.why.startswith(LATE) for n in one.rules}
        hardly = len(late & of_one) > len(of_one) // 2
        return not self.findings and (hardly or not self.judged & of_one)


def plain_findings(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as JSON."""
    return [{name: getattr(one, name) for name in _TOLD} for one in findings]


def plain_report(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "findings": plain_findings(report.findings),
        "healthy": list(report.healthy),
        "not_looked_at": [dataclasses.asdict(missed) for missed in report.not_looked_at],
        "about": report.about,
        "steps": report.steps,
        "seconds": round(report.seconds, 2),
    }
