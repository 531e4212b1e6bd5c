"""Rules that compare a run with an earlier one of the same script.

Rules of this file: what is compared, and how, is the business of `probing.diagnosis.runs`; here it
becomes findings. Only what is worse than it was is wrong; what was set up otherwise and explains
nothing that is worse may be meant.
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING

from ...cluster.job.membership import names_of
from ..runs.effects import MOST_TOLD, Effect, Kind
from .findings import Finding, Rule, Sign, finding_of, of_several
from .report import NotLooked, Report

if TYPE_CHECKING:
    from ...cluster.job.members import Member
    from ..runs.comparison import RunComparison
    from ..runs.setup import Difference

_MOST_NAMED = 3
_MOST_LISTED = 12
_COMMAND = "probing diff"
_NEXT = f"{_COMMAND} RUN ENDPOINT"
_CONFIGURE = "Nothing, if it is meant; else set it back."


_OF_EFFECTS: dict[Kind, Rule] = {
    "speed": Rule(
        name="slower-than-before",
        group="slow",
        subject="earlier run",
        symptom="The same script takes longer than it did the last time.",
        evidence="Only with `--against`. `duration` of python.steps, of the same steps where there"
        " are enough: medians of the means of 8 steps in a row, with a 99 % interval by a moving"
        " block bootstrap. Told where all of it is above 1.05; likely above 1.1 where a difference"
        " that is made for that explains it, 1.25 where one may, 1.5 where none is on record. Only"
        " possible where each sample takes as long as it did, or others used the processors.",
        certainty="likely",
        gravity=47,
        fix="Look at what is named as changed; where that is nothing, at the machine.",
        next=_NEXT,
        look=of_several,
    ),
    "memory": Rule(
        name="more-memory-than-before",
        group="memory",
        subject="earlier run",
        symptom="The same script needs more memory than it did the last time.",
        evidence="Only with `--against`. Medians of `allocated_bytes` of python.steps, of the same"
        " steps where there are enough: 1.15 times and 32 MiB; likely from 1.3 times and 64 MiB, or"
        " where a difference that is made for that explains it.",
        certainty="likely",
        gravity=50,
        fix="Look at what is named as changed; `memory` and `leak` show who holds it.",
        next=_NEXT,
        look=of_several,
    ),
    "loss": Rule(
        name="loss-above-before",
        group="numbers",
        subject="earlier run",
        symptom="The same script learns less than it did the last time.",
        evidence="Only with `--against`. `loss` of python.steps at the same steps, 80 or more: the"
        " last quarter of them is higher by a tenth of what the loss had fallen by, with all of a"
        " 99 % interval; likely from a quarter on, where what differs usually changes the loss.",
        certainty="likely",
        gravity=58,
        fix="Look at what is named as changed; with the same seed, at the step in which the losses"
        " first differ.",
        next=_NEXT,
        look=of_several,
    ),
    "not_finite": Rule(
        name="loss-lost-unlike-before",
        group="numbers",
        subject="earlier run",
        symptom="The loss of the same script is NaN or infinite, and was not the last time.",
        evidence="Only with `--against`. `loss` of python.steps: not finite in the newest step that"
        " has one, and since an earlier step than in the other run, or in that one not at all.",
        certainty="certain",
        gravity=70,
        fix="Look at what is named as changed; with the same seed, at the step in which the losses"
        " first differ.",
        next=_NEXT,
        look=of_several,
    ),
}
_SET_UP = Rule(
    name="other-set-up",
    group="numbers",
    subject="earlier run",
    symptom="It is not the run that one thinks it is.",
    evidence="Only with `--against`. Arguments, files, models, optimizers, loaders, switches of"
    " torch, environment variables, versions, seeds and machine of python.environment, and batches"
    " and learning rates of python.steps, as far as they can change anything and explain nothing"
    " that is told beside it.",
    certainty="possible",
    gravity=5,
    fix=_CONFIGURE,
    next=_NEXT,
    look=of_several,
)
AGAINST_RULES: tuple[Rule, ...] = (*_OF_EFFECTS.values(), _SET_UP)
"""Rules that `examine` knows nothing of."""


def findings_of(
    compared: RunComparison, names: tuple[str, str], *, command: str = _COMMAND
) -> tuple[Finding, ...]:
    """All that came of what differs, for better or worse, as findings.

    Args:
        names: What the user calls the runs.
        command: What compares them.
    """
    return tuple(
        _finding(_OF_EFFECTS[e.kind], _sign_of(e), names, command) for e in compared.effects
    )


def with_comparison(report: Report, compared: RunComparison, names: tuple[str, str]) -> Report:
    """A report with what is worse than in an earlier run, and what was set up otherwise."""
    worse = [effect for effect in compared.effects if effect.is_worse]
    found = [_finding(_OF_EFFECTS[e.kind], _sign_of(e), names) for e in worse]
    told = {id(cause) for effect in worse for cause in effect.causes[:MOST_TOLD]}
    others = [one for one in compared.differences if one.reach.strength and id(one) not in told]
    if others:
        found.append(_finding(_SET_UP, _set_up(compared, others), names))
    missed = tuple(
        NotLooked(rules=(f"{what} against {compared.before.name}",), why=why)
        for what, why in compared.not_looked_at
    )
    is_well = not found and not missed
    return dataclasses.replace(
        report,
        findings=tuple(sorted((*report.findings, *found), key=lambda finding: finding.order)),
        healthy=(*report.healthy, *((f"the same as {compared.before.name}",) if is_well else ())),
        not_looked_at=(*report.not_looked_at, *missed),
    )


def without_comparison(report: Report, name: str, why: str) -> Report:
    """A report that says why it was not compared with an earlier run."""
    missed = NotLooked(rules=tuple(f"{r.name} against {name}" for r in AGAINST_RULES), why=why)
    return dataclasses.replace(report, not_looked_at=(*report.not_looked_at, missed))


def of_one_rank(report: Report, member: Member, name: str) -> Report:
    """A report that says which rank of a job was compared: a run is one process."""
    if report.processes < 2:
        return report
    who = names_of([member])
    why = f"an earlier run is one process: {who} alone was compared with its namesake"
    missed = NotLooked(rules=(f"the other {report.processes - 1} against {name}",), why=why)
    return dataclasses.replace(report, not_looked_at=(*report.not_looked_at, missed))


def _sign_of(effect: Effect) -> Sign:
    return Sign(
        certainty=effect.certainty,
        summary=effect.summary,
        since_step=effect.since_step,
        evidence=effect.evidence,
        weight=effect.weight,
        fix="" if effect.is_worse else "Nothing, if that was the aim.",
    )


def _set_up(compared: RunComparison, others: list[Difference]) -> Sign:
    words = [one.words for one in others]
    more = len(words) - _MOST_NAMED
    rest = f"; and {more} more difference{'s' if more > 1 else ''}" if more > 0 else ""
    return Sign(
        certainty="possible",
        summary=f"It is not set up as {compared.before.name} was:"
        f" {'; '.join(words[:_MOST_NAMED])}{rest}",
        evidence=tuple(words[_MOST_NAMED:_MOST_LISTED]),
    )


def _finding(rule: Rule, sign: Sign, names: tuple[str, str], command: str = _COMMAND) -> Finding:
    """A finding, with what shows more: the runs, by what compares them."""
    shows = f"{command} {shlex.join(names)}"
    return dataclasses.replace(finding_of(rule, sign, asked=shlex.quote(names[1])), next=shows)
