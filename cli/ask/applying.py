"""An action on one process, on several, and on all ranks of a job.

Rules of this file: ranks of one job apply it at the same step, all or none; processes that belong
to no job together are asked one by one.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..output import terminal
from ..render.process.actions import act_notes, render_act, render_together
from ..render.text import wrap_lines
from .many import membership_of, tell_coverage
from .replies import Replies, tell_notes

if TYPE_CHECKING:
    from ...client.base import Process
    from ...cluster.job.membership import Member
    from ...cluster.job.outcomes import Outcome
    from ...messages.about.act import Act, Asked
    from ..target import Target


def act_on(target: Target, asked: Asked, *, as_json: bool) -> int:
    """Have it applied, and say what came of it.

    Returns:
        The exit code.
    """
    if target.is_single:
        return _act_on_one(target, asked, as_json=as_json)
    from ...cluster.job.membership import jobs_among

    jobs, alone = jobs_among(membership_of(target).members)
    plain: list[dict[str, Any]] = []
    code = 0
    for ranks in jobs:
        code = _act_on_job(target, asked, ranks, plain if as_json else None) or code
    if alone:
        code = _act_on_each(target, asked, alone, plain if as_json else None) or code
    if as_json:
        terminal.write_json(plain)
    return code


def _act_on_one(target: Target, asked: Asked, *, as_json: bool) -> int:
    """One process."""
    replies: Replies[Act] = Replies(target, lambda p: p.act(asked, timeout_s=target.timeout_s))
    for reply in replies:
        tell_notes(target, reply.endpoint, reply.notes)
        if as_json:
            terminal.write_json(dataclasses.asdict(reply.value))
        else:
            terminal.write(wrap_lines(render_act(reply.value), terminal.screen().width))
            tell_notes(target, reply.endpoint, act_notes(reply.value))
    return replies.exit_code


def _act_on_job(
    target: Target, asked: Asked, ranks: list[Member], plain: list[dict[str, Any]] | None
) -> int:
    """All ranks of a job, at one step."""
    from ...cluster.job.same_step import act_together

    together = act_together(ranks, asked, timeout_s=target.limit_s, token=target.token)
    if together.failure is not None:
        terminal.complain(together.failure, endpoint=_job_words(ranks))
        tell_coverage(together.outcomes)
        return together.failure.exit_code
    _show(together.outcomes, plain, _job_words(ranks))
    tell_coverage(together.outcomes)
    return 0


def _act_on_each(
    target: Target, asked: Asked, members: list[Member], plain: list[dict[str, Any]] | None
) -> int:
    """Processes that have nothing to do with each other."""
    from ...cluster.job.outcomes import ask_all

    def act(process: Process, _: Member) -> Act:
        return process.act(asked, timeout_s=target.timeout_s)

    outcomes = ask_all(
        members, act, timeout_s=target.limit_s, token=target.token, deadline_s=86_400.0
    )
    _show(outcomes, plain)
    errors = [(o.member.name, o.error) for o in outcomes if o.error is not None]
    for name, error in errors:
        terminal.complain(error, endpoint=name)
    tell_coverage(outcomes)
    return errors[0][1].exit_code if errors else 0


def _job_words(ranks: list[Member]) -> str | None:
    """What their job is called, where it has a name."""
    return f"job {ranks[0].job}" if ranks[0].job else None


def _show(
    outcomes: tuple[Outcome[Act], ...], plain: list[dict[str, Any]] | None, job: str | None = None
) -> None:
    """Print what was changed, equal answers once; what else is to be known goes to stderr."""
    acts = {_rank_of(o.member): o.value for o in outcomes if o.value is not None}
    if plain is not None:
        plain += [
            {"endpoint": o.member.name, "answer": dataclasses.asdict(o.value)}
            for o in outcomes
            if o.value is not None
        ]
    elif acts:
        terminal.write(wrap_lines(render_together(acts, job=job), terminal.screen().width))
    notes: dict[str, list[str]] = {}
    for outcome in outcomes:
        for note in outcome.value.notes if outcome.value is not None else ():
            notes.setdefault(note, []).append(outcome.member.name)
    for note, names in notes.items():
        terminal.note(note if len(names) == len(outcomes) else f"{', '.join(names)}: {note}")


def _rank_of(member: Member) -> int | str:
    """What a person calls it."""
    return member.name if member.rank is None else member.rank
