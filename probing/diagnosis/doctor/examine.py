"""From the members of a job to a report: what is wrong, what is healthy, what was not looked at.

Rules of this file: the verdict of `hang` first, since it says whether anything live may be asked;
then all processes at once, each by all rules; then the rules that compare ranks. A rule that cannot
be judged is told with its reason, and never taken for healthy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...client.connecting import connect
from ...cluster.job.membership import names_of
from ...cluster.job.outcomes import Outcome, ask_all
from ...cluster.job.parallel import run_at_once
from ...cluster.ranks.question import Asking
from ...errors import ProbingError
from ...messages.limits import examined_s
from .effects import PROGRESS, RANKS, contradicted, without_effects
from .facts import LEAST_STEPS, Facts
from .findings import ABOUT_NOW, CERTAINTIES, Finding, Rule, Sign, finding_of
from .not_looked_at import LATE, NOT_THOROUGH
from .ranks.job_rules import JOB_RULES, Job
from .report import NotLooked, Report
from .scope import COMPARED_UNTIL, LIVE_UNTIL, RULES_UNTIL, Clock, Group, How, diagnosed
from .turns.judging import Judged, all_rules, as_it_is, judge, run

if TYPE_CHECKING:
    from ...client.base import Process
    from ...cluster.job.members import Member

_SUREST_FIRST = tuple(CERTAINTIES)


def examine(
    members: Sequence[Member],
    *,
    token: str | None,
    asked: str,
    is_thorough: bool = True,
    within_s: float = examined_s.usual_s,
) -> Report:
    """Look at everything that is on record and live.

    Args:
        asked: How the command named the processes, as it stands before another command.
        is_thorough: Also by rules that wait for steps of the training.
        within_s: How long it takes at the most; what was not looked at by then is told.
    """
    clock, began_ns = Clock(within_s, is_alone=len(members) == 1), time.perf_counter_ns()
    how = How(clock, token, asked, is_thorough)
    groups = diagnosed(members, how)
    judged, outcomes = _judge_groups(groups, how, began_ns)
    judged, beside = _without_launchers(judged)
    findings, missed, by_whole = _of_groups(groups, judged, _unseen(judged, outcomes, clock), how)
    seen = [member for group in groups for member in group.seen]
    steps = max((len(one.facts.known_steps or ()) for one in judged), default=0)
    too_early = _too_early(findings, missed, steps) if judged else ()
    missed += too_early
    names = frozenset(name for one in too_early for name in one.rules)
    has_ended = bool(judged) and not any(one.facts.is_alive for one in judged)
    is_compared = any(len(group.chosen) > 1 for group in groups)
    unknown = (PROGRESS,) * has_ended + (RANKS,) * (not is_compared)
    return Report(
        findings=tuple(sorted(findings, key=lambda finding: finding.order)),
        healthy=_healthy(findings, missed, unknown) if judged else (),
        not_looked_at=missed,
        missed_of={whole: those | names for whole, those in by_whole.items()},
        about=names_of(seen),
        processes=len(seen),
        steps=steps,
        seconds=clock.passed_s(),
        has_ended=has_ended,
        notes=_notes(groups, outcomes) + beside,
    )


def _judge_groups(
    groups: Sequence[Group], how: How, began_ns: int
) -> tuple[list[Judged], Sequence[Outcome[None]]]:
    """Have the rules judge each process that was chosen; also what became of asking it."""
    clock, begun = how.clock, list[Judged]()
    verdicts = {id(member): group.verdict for group in groups for member in group.chosen}

    def begin(process: Process, member: Member) -> Judged:
        facts = Facts(process, member, verdicts[id(member)], live_s=clock.left_s(LIVE_UNTIL))
        facts.leave_out_steps_since(began_ns)
        facts.prepare(sql for rule in all_rules() for sql in rule.asks)
        judged = Judged(member, facts, [], {})
        begun.append(judged)
        return judged

    def look(process: Process, member: Member) -> None:
        judge(begin(process, member), is_thorough=how.is_thorough, clock=clock)

    outcomes = ask_all(
        [member for group in groups for member in group.chosen],
        look,
        timeout_s=clock.question_s,
        token=how.token,
        deadline_s=clock.left_s(RULES_UNTIL),
    )
    seen = {id(one.member): one for one in tuple(begun)}
    for one in outcomes:  # whose thread has not even begun: its files are there
        member = one.member
        if one.state == "late" and id(member) not in seen and os.path.isabs(member.endpoint):
            with contextlib.suppress(ProbingError):
                seen[id(member)] = begin(connect(member.endpoint), member)
    late, end_s = clock.late(), time.monotonic() + clock.left_s(RULES_UNTIL)
    return [as_it_is(one, late, end_s=end_s) for one in seen.values()], outcomes


def _of_groups(
    groups: Sequence[Group],
    judged: Sequence[Judged],
    unseen: Sequence[tuple[Member, dict[str, str]]],
    how: How,
) -> tuple[list[Finding], tuple[NotLooked, ...], dict[str, frozenset[str]]]:
    """The findings of all groups, what was not judged in any, and in which whole.

    Args:
        unseen: What was not judged in those that could not be looked at at all.
    """
    findings: list[Finding] = []
    by_whole: dict[str, frozenset[str]] = {}
    each = [*unseen, *((one.member, one.missed) for one in judged)]
    missed = [names for _, names in each]
    for group in groups:
        own = [one for one in judged if any(one.member is member for member in group.chosen)]
        found = _merged(own, how.asked, of=len(group.chosen))
        if len(group.chosen) > 1:
            more, not_judged = _compared(own, group, how)
            found, missed = found + more, [*missed, not_judged]
            each.append((group.chosen[0], not_judged))
        found = without_effects(found)
        whole = group.whole
        its = {id(member) for member in group.chosen}
        by_whole[whole] = by_whole.get(whole, frozenset()).union(
            *(names for member, names in each if id(member) in its)
        )
        found = [dataclasses.replace(one, whole=whole) for one in found]
        findings += [_with_name(one, group) for one in found] if len(groups) > 1 else found
    return findings, _missed(missed), by_whole


def _without_launchers(judged: Sequence[Judged]) -> tuple[list[Judged], tuple[str, ...]]:
    """That rules about steps could not be judged for what only starts ranks is no news."""
    launchers = {id(one): one.member for one in judged if _makes_no_steps(one)}
    if not launchers or not any(one.facts.known_steps for one in judged):
        return list(judged), ()
    kept = [dataclasses.replace(o, missed={}) if id(o) in launchers else o for o in judged]
    note = (
        f"{names_of([*launchers.values()])} {'makes' if len(launchers) == 1 else 'make'} no steps"
    )
    return kept, (f"{note}: only rules that need none were judged there",)


def _makes_no_steps(judged: Judged) -> bool:
    """Whether it is no rank, and has no step, not even one that goes on."""
    steps = judged.facts.known_steps
    return judged.member.rank is None and steps is not None and not steps and steps.open is None


def _unseen(
    judged: Sequence[Judged], outcomes: Sequence[Outcome[None]], clock: Clock
) -> list[tuple[Member, dict[str, str]]]:
    """Why no rule was judged for processes: of those that were slow, or of all if there are none.

    Who cannot be asked otherwise, as one that has gone without a record, is told by a note.
    """
    begun = {id(one.member) for one in judged}
    names = [rule.name for rule in all_rules()]
    found = []
    for one in outcomes:
        is_late = one.state == "late"
        if id(one.member) not in begun and one.error is not None and (is_late or not judged):
            why = clock.late() if is_late else one.error.message.rstrip(".")
            found.append((one.member, dict.fromkeys(names, why)))
    return found


def _with_name(finding: Finding, group: Group) -> Finding:
    """A finding that says whom it is about, where others are asked, too."""
    job = group.seen[0].job if len(group.seen) > 1 else None
    if finding.group in ABOUT_NOW:  # it does
        return finding
    who = finding.who or names_of(group.seen)
    who = f"job {job}, {who}" if job else who
    summary = finding.summary.removeprefix(f"{finding.who[:1].upper()}{finding.who[1:]}: ")
    return dataclasses.replace(finding, who=who, summary=f"{who[:1].upper()}{who[1:]}: {summary}")


def _notes(groups: Sequence[Group], outcomes: Sequence[Outcome[None]]) -> tuple[str, ...]:
    """Who could not be looked at."""
    notes = tuple(
        f"{names_of([outcome.member])} could not be looked at: {outcome.error.message}"
        for outcome in outcomes
        if outcome.error is not None and outcome.state != "late"
    )
    for group in groups:
        if len(group.chosen) < len(group.seen):
            number = f"{len(group.chosen)} of {len(group.seen)}"
            notes += (f"{number} processes were looked at one by one",)
    return notes


def _compared(
    judged: Sequence[Judged], group: Group, how: How
) -> tuple[list[Finding], dict[str, str]]:
    """What comes of comparing ranks, as far as that ends in time."""
    limit_s = how.clock.left_s(COMPARED_UNTIL)
    told: dict[str, tuple[list[Finding], str | None]] = {}
    task = functools.partial(_judge_job, judged, group, how, limit_s, told.__setitem__)
    done = run_at_once([task], timeout_s=limit_s, at_once=1)[0]
    if done is not None and done.error is not None:
        raise done.error
    by_rule, missed = dict(told), {}  # a thread may still be at it, and is not waited for
    if done is None:
        late = how.clock.late()
        missed = {one.rule.name: late for one in JOB_RULES if one.rule.name not in by_rule}
    missed |= {name: why for name, (_, why) in by_rule.items() if why is not None}
    return [finding for found, _ in by_rule.values() for finding in found], missed


def _judge_job(
    judged: Sequence[Judged],
    group: Group,
    how: How,
    limit_s: float,
    tell: Callable[[str, tuple[list[Finding], str | None]], None],
) -> None:
    """The rules that compare ranks, those that take time last; each is told once it is judged."""
    ranks = {one.member.rank: one.facts for one in judged if one.member.rank is not None}
    question_s = min(how.clock.question_s, limit_s)
    asking = Asking(members=tuple(group.seen), timeout_s=question_s, token=how.token)
    still = group.verdict.outcome != "fine"
    job = Job(ranks=ranks, asking=asking, stands_still=still, times=group.times)
    for one in sorted(JOB_RULES, key=lambda one: one.rule.cost_s) if len(ranks) > 1 else ():
        if one.rule.cost_s and not how.is_thorough:
            tell(one.rule.name, ([], NOT_THOROUGH))
            continue
        signs, why = run(functools.partial(one.look, job))
        found = [
            _blaming(finding_of(one.rule, sign, asked=how.asked), sign, group) for sign in signs
        ]
        tell(one.rule.name, (found, why))


def _blaming(finding: Finding, sign: Sign, group: Group) -> Finding:
    """With the names of the ranks that a comparison blames."""
    blamed = frozenset(member.name for member in group.seen if member.rank in sign.ranks)
    return dataclasses.replace(finding, blamed=blamed)


def _merged(judged: Sequence[Judged], asked: str, *, of: int) -> list[Finding]:
    """What the rules have found in each process, each rule once."""
    by_rule: dict[str, list[tuple[Member, Rule, Sign]]] = {}
    for one in judged:
        for rule, sign in one.found:
            by_rule.setdefault(rule.name, []).append((one.member, rule, sign))
    findings = []
    for those in by_rule.values():
        _, rule, sign = min(
            those, key=lambda found: (_SUREST_FIRST.index(found[2].certainty), -found[2].weight)
        )
        members = list({id(member): member for member, _, _ in those}.values())
        is_alive = any(member.is_alive is not False for member in members)
        finding = finding_of(rule, sign, asked=asked, is_alive=is_alive)
        if of > 1 and rule.group not in ABOUT_NOW:
            who = names_of(members)
            finding = dataclasses.replace(
                finding,
                who=who,
                members=frozenset(member.name for member in members),
                summary=f"{who[:1].upper()}{who[1:]}: {finding.summary}",
            )
        findings.append(finding)
    return findings


def _missed(each: Iterable[dict[str, str]]) -> tuple[NotLooked, ...]:
    """What was not judged, by reason."""
    by_reason: dict[str, list[str]] = {}
    for missed in each:
        for name, why in missed.items():
            names = by_reason.setdefault(why, [])
            if name not in names:
                names.append(name)
    return tuple(NotLooked(rules=_gravest_first(n, w), why=w) for w, n in by_reason.items())


def _gravest_first(names: Sequence[str], why: str) -> tuple[str, ...]:
    """The names of rules that were not judged for this reason, the gravest first if time is it."""
    rules = (*all_rules(), *(one.rule for one in JOB_RULES)) if why.startswith(LATE) else ()
    gravity = {rule.name: rule.gravity for rule in rules}
    return tuple(sorted(names, key=lambda name: -gravity.get(name, 0)))


def _healthy(
    findings: Sequence[Finding], missed: Sequence[NotLooked], unknown: Iterable[str] = ()
) -> tuple[str, ...]:
    """Subjects of which each rule was judged and found nothing, and no finding says otherwise.

    Args:
        unknown: Those that nobody can say anything of: that what has ended gets on, and how ranks
            are that were not compared.
    """
    told = {finding.rule for finding in findings} | {n for one in missed for n in one.rules}
    ill = contradicted(findings).union(unknown)
    subjects: dict[str, bool] = {}
    for rule in all_rules():
        subjects[rule.subject] = subjects.get(rule.subject, True) and rule.name not in told
    return tuple(one for one, is_well in subjects.items() if is_well and one not in ill)


def _too_early(
    findings: Sequence[Finding], missed: Sequence[NotLooked], steps: int
) -> tuple[NotLooked, ...]:
    """What so few steps tell nothing of: that nothing is found is no sign of health then."""
    if steps >= LEAST_STEPS:
        return ()
    told = {finding.rule for finding in findings} | {n for one in missed for n in one.rules}
    now = {rule.subject for rule in all_rules() if rule.group in ABOUT_NOW}
    rules = [rule.name for rule in all_rules() if rule.subject not in now and rule.name not in told]
    if not rules:
        return ()
    why = f"only {steps} step{'' if steps == 1 else 's'} on record, and {LEAST_STEPS} are needed"
    return (NotLooked(rules=tuple(rules), why=why),)
