"""A verdict as a text: the sentence first, then who, then what to do and how to see it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ....diagnosis.hang import Cause, Verdict
from ....diagnosis.hang.words.texts import ranks_text
from ..text import escape_controls, wrap_sentence

_WIDEST = 100
_EARLY = "NOT YET A HANG"


def render_verdicts(
    verdicts: Sequence[Verdict], *, width: int | None, most: int = 8, asked: str = "-t all"
) -> str:
    """The verdicts on all jobs, each under its name where there are several.

    Args:
        most: Causes to show of each; 0 for all.
        asked: How the command named those that they are about.
    """
    several = len(verdicts) > 1
    return "\n\n".join(
        render_verdict(verdict, width=width, most=most, with_job=several, asked=asked)
        for verdict in verdicts
    )


def render_verdict(
    verdict: Verdict,
    *,
    width: int | None,
    most: int = 8,
    with_job: bool = False,
    asked: str = "-t all",
) -> str:
    """One verdict."""
    blocks = [_head(verdict, width, with_job=with_job), _who(verdict, width, most)]
    blocks.append(_grounds(verdict, width))
    blocks.append(_numbered(verdict.next_steps, width))
    blocks.append(_queries(verdict, asked, of_job=with_job))
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _head(verdict: Verdict, width: int | None, *, with_job: bool) -> list[str]:
    word = _word(verdict)
    lines = [f"job {escape_controls(verdict.job)}"] if with_job and verdict.job else []
    lines += _wrapped(f"{word}: {verdict.headline}", width, "")
    if word == _EARLY and verdict.still_s is not None:
        threshold = f"{verdict.threshold_s:.0f} s" if verdict.threshold_s is not None else "10 s"
        so_far = f"Not moving for {verdict.still_s:.1f} s so far; a hang is told after {threshold}."
        lines += _wrapped(so_far, width, "")
    return lines


def _word(verdict: Verdict) -> str:
    """What kind of verdict it is, in capitals."""
    if verdict.is_hang:
        return "HANG"
    if verdict.has_ended:
        return "ENDED"
    if verdict.kind == "unknown" and verdict.still_s is None:
        return "UNKNOWN"
    return {"healthy": "OK", "process": "PROCESS", "slow": "SLOW"}.get(verdict.kind, _EARLY)


def _who(verdict: Verdict, width: int | None, most: int) -> list[str]:
    """The ranks that are named, and those that are not."""
    shown = verdict.causes[:most] if most else verdict.causes
    lines = [line for cause in shown for line in _cause(cause, width)]
    if len(shown) < len(verdict.causes):
        lines.append(f"  ... and {len(verdict.causes) - len(shown)} more; `-n 0` shows all")
    if verdict.victims:
        plural = "s" if len(verdict.victims) > 1 else ""
        verb = "waited" if verdict.has_ended else "wait" if plural else "waits"
        does = f" only {verb}" + (f" in {verdict.victims_do}" if verdict.victims_do else "")
        ranks = ranks_text(verdict.victims)
        lines += _wrapped(f"victims ({len(verdict.victims)}): {ranks}{does}", width, "  ")
    return lines


def _cause(cause: Cause, width: int | None) -> list[str]:
    name = f"rank {cause.rank}" if cause.rank is not None else "process"
    where = f" (pid {cause.pid}{f' on {cause.host}' if cause.host else ''})" if cause.pid else ""
    lines = _wrapped(f"{name}{where}: {cause.what}", width, "  ")
    for text in dict.fromkeys(cause.evidence):
        lines += _wrapped(text, width, "      ")
    return lines


def _grounds(verdict: Verdict, width: int | None) -> list[str]:
    """How sure it is, what it is based on, and what else stands out."""
    lines = []
    if verdict.confidence:
        lines += _wrapped(f"confidence: {verdict.confidence}", width, "")
    if verdict.coverage:
        lines += _wrapped(f"coverage: {verdict.coverage}", width, "")
    for note in verdict.notes:
        lines += _wrapped(f"note: {note}", width, "")
    return lines


def _numbered(steps: Sequence[str], width: int | None) -> list[str]:
    if not steps:
        return []
    lines = ["what to do:"]
    for number, step in enumerate(steps, 1):
        lines += _wrapped(f"{number}. {step}", width, "  ")
    return lines


def _queries(verdict: Verdict, asked: str, *, of_job: bool) -> list[str]:
    """The queries, each on one line so that it can be copied.

    Args:
        of_job: Whether others were asked, too, whose rows are of another job.
    """
    lines = ["see it yourself:"] if verdict.queries else []
    is_kept = verdict.job and asked == "-t all" and (verdict.has_ended or of_job)
    target = f"-t {shlex.quote(f'job:{verdict.job}')}" if is_kept else asked
    for query in verdict.queries:
        lines.append(f"  # {query.title}")
        lines.append(f'  probing {target} query "{escape_controls(query.sql)}"')
    return lines


def _wrapped(text: str, width: int | None, indent: str) -> list[str]:
    room = _WIDEST if width is None else min(width, _WIDEST)
    return wrap_sentence(text, room, indent, indent + "  ", least=40)
