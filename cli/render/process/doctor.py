"""What is wrong with a training: the verdict, the evidence and the next command of each finding."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ....diagnosis.doctor.findings import Finding
from ....diagnosis.doctor.report import NotLooked, Report
from ..text import escape_controls, plural, wrap_sentence

_WIDEST = 100
_COLORS = {"certain": "\x1b[31m", "likely": "\x1b[33m", "possible": "\x1b[36m"}
_RESET = "\x1b[0m"
_ENDED = frozenset({"ended", "terminated"})
_MOST_EVIDENCE = 4
_MOST_MISSED = 6
_LONGER = "a longer --timeout"
_TIMES, _HALF_S = 4, 30
"""What had no time left gets four times as long, in whole half minutes: its start counts, too."""


def render_report(
    report: Report, *, width: int | None, color: bool, most: int | None = None
) -> str:
    """The report for a terminal.

    Args:
        most: Findings to show in full; None for all.
    """
    room = min(width or _WIDEST, _WIDEST)
    shown = report.findings[:most]
    blocks = [
        "\n".join(render_finding(number, finding, room, color=color))
        for number, finding in enumerate(shown, 1)
    ]
    more = report.findings[len(shown) :]
    if more:
        names = ", ".join(f"{finding.rule} ({finding.certainty})" for finding in more)
        blocks.append("\n".join(wrap_sentence(f"and {names}; -n 0 shows them", room, "   ")))
    if not report.findings:
        blocks.append("\n".join(wrap_sentence(nothing_found(report), room, "")))
    blocks.append("\n".join(_rest(report, room)))
    return "\n\n".join(blocks)


def render_finding(number: int, finding: Finding, room: int, *, color: bool) -> list[str]:
    """One finding: the verdict, then the evidence, then what to type and to do."""
    word = finding.certainty
    label = f"{_COLORS[word]}{word}{_RESET}" if color else word
    head = wrap_sentence(finding.summary, room - len(word) - 2, f"{number:2} ", "   ")
    pad = max(1, room - len(head[0]) - len(word))
    lines = [head[0] + " " * pad + label, *head[1:]]
    for sentence in dict.fromkeys((*_since(finding), *finding.evidence[:_MOST_EVIDENCE])):
        lines += wrap_sentence(sentence, room, "     - ", "       ")
    if finding.fix:
        lines += wrap_sentence(f"fix: {finding.fix}", room, "   ", "        ")
    lines += [f"   next: {escape_controls(finding.next)}"]
    return lines


def _since(finding: Finding) -> list[str]:
    """The step since when, where the verdict does not name it."""
    step = finding.since_step
    if not step or re.search(rf"\b{step:,}\b|\b{step}\b", finding.summary):
        return []
    return [f"{'in' if finding.rule in _ENDED else 'since'} step {step}"]


def _rest(report: Report, room: int) -> list[str]:
    """What is healthy, what was not looked at, and what all of that rests on."""
    lines = []
    if report.healthy:
        lines += wrap_sentence(f"healthy: {', '.join(report.healthy)}", room, "", "  ")
    for missed in report.not_looked_at:
        lines += wrap_sentence(f"not looked at: {_missed(missed)}", room, "", "  ")
    lines.append(_rests_on(report))
    return lines


def _rests_on(report: Report) -> str:
    """How many steps were looked at, and how long that took."""
    such = f", such as {_HALF_S * max(1, math.ceil(_TIMES * report.seconds / _HALF_S))}"
    if report.is_blind:
        return f"after {report.seconds:.0f} s; {_LONGER} gives it more{such}"
    looked = f"{plural(report.steps, 'step')} looked at, {report.seconds:.0f} s"
    return looked + (f"; {_LONGER} leaves time for the rest{such}" if report.was_late else "")


def nothing_found(report: Report) -> str:
    """That nothing was found, or that hardly anything was looked at."""
    about = escape_controls(report.about)
    if report.is_blind:
        return f"Too little could be looked at in {about} to say that all is well."
    looked, rules = report.looked
    if looked < rules / 2:
        return f"Only {looked} of {rules} rules could look at {about}; these found nothing wrong."
    return f"Nothing wrong was found in {about}."


def _missed(missed: NotLooked) -> str:
    more = len(missed.rules) - _MOST_MISSED
    names = ", ".join(missed.rules[:_MOST_MISSED]) + (f" and {more} more" if more > 0 else "")
    return f"{names} ({missed.why})"


def markdown_report(report: Report) -> str:
    """The report as something to paste into an issue."""
    blocks = [f"# What is wrong with {_cell(report.about)}"]
    if not report.findings:
        blocks.append(_cell(nothing_found(report)))
    for number, finding in enumerate(report.findings, 1):
        blocks.append(f"## {number}. {_cell(finding.summary)}")
        facts = [f"- **{finding.certainty}**, `{finding.rule}`"]
        if finding.since_step is not None:
            facts[0] += f", since step {finding.since_step}"
        facts += [f"- {_cell(sentence)}" for sentence in finding.evidence]
        facts += [f"- Fix: {_cell(finding.fix)}"] if finding.fix else []
        facts += [f"- Next: `{escape_controls(finding.next)}`"]
        facts += [f"- Source: <{finding.source}>"] if finding.source else []
        blocks.append("\n".join(facts))
    blocks.append("\n".join(_markdown_rest(report.healthy, report.not_looked_at)))
    blocks.append(f"{_rests_on(report)}.")
    return "\n\n".join(block for block in blocks if block)


def _markdown_rest(healthy: Sequence[str], missed: Sequence[NotLooked]) -> list[str]:
    lines = [f"Healthy: {', '.join(healthy)}."] if healthy else []
    lines += [f"- Not looked at: {_cell(_missed(one))}" for one in missed]
    return lines


def _cell(text: str) -> str:
    """Text that Markdown shows as it is."""
    return escape_controls(text).replace("<", "&lt;").replace("*", "\\*")
