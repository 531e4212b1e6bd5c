"""Draws one run of a history on one screen.

Rules of this file: records in, text out. Each fact has a name at the left; what is not known has no
line.
"""

from __future__ import annotations

import shlex
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ....cluster.job.rank_sets import rank_set
from ....sql.quoting import text_literal
from ....units import age, duration, figure, size
from ..one_screen import (
    LABEL,
    column,
    loss_line,
    named,
    number,
    phase_lines,
    room_in,
    slowest_modules,
)
from ..text import cut_middle, cut_words, escape_controls, plural, render_count

if TYPE_CHECKING:
    from ...reports.run.kept import KeptRank, LossCourse, RunOnOneScreen, Speed

_MODULES = 5
_MOST_ENDINGS = 3
_SLOWER = 1.05
"""A rank whose steps take so many times the median rank's is told."""
_MISSING = {
    "overwritten": "overwritten before they were exported",
    "damaged": "damaged",
    "waiting": "still to come",
    "gone": "exported, and not there any more",
}


def render_kept_run(
    shown: RunOnOneScreen, place: str, asked: str, *, width: int | None, color: bool
) -> str:
    """The screen.

    Args:
        place: The history's folder.
        asked: What the run is called there, see `KeptRun`.
    """
    room = room_in(width)
    steps = plural(shown.module_steps, "step")
    blocks = [
        list(_head(shown, room)),
        list(_figures(shown, room, color=color)),
        list(slowest_modules(f"own code, forward, last {steps}", shown.modules[:_MODULES], room)),
        list(_not_kept(shown, room)),
        list(_next(shown, place, asked)),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _lines(name: str, text: str, room: int) -> Iterator[str]:
    """A text in a few lines, its name before the first."""
    lines = textwrap.wrap(
        escape_controls(text), room - LABEL - 1, max_lines=3, placeholder=" …",
        break_on_hyphens=False,
    )  # fmt: skip
    yield from column(name, lines)


def _head(shown: RunOnOneScreen, room: int) -> Iterator[str]:
    """Who it is, when it ran and how it ended."""
    yield f"run {escape_controls(shown.run)} of project {escape_controls(shown.project)}"
    yield "  " + cut_middle(escape_controls(shown.command), room - 2)
    yield from _lines("with", ", ".join(_versions(shown)), room)
    yield from _lines("began", _when(shown), room)
    if shown.of_rank is None:
        yield from (
            named("process", f"{one.pid} on {escape_controls(one.host)}") for one in shown.ranks[:1]
        )
    else:
        yield from _lines("ranks", _ranks(shown), room)
    yield from _endings(shown, room)


def _versions(shown: RunOnOneScreen) -> Iterator[str]:
    """What it ran in."""
    if shown.git_commit:
        branch = f" of {shown.git_branch}" if shown.git_branch else ""
        changed = shown.not_committed or ()
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        but = f" but for {changed[0]}{others}" if changed else ""
        yield f"commit {shown.git_commit[:10]}{branch}{but}"
    if shown.torch:
        yield f"torch {shown.torch}"
    yield f"Python {shown.python}"
    yield f"probing {shown.probing}"
    if shown.devices:
        yield shown.devices
    if shown.attempt:
        yield f"restart {shown.attempt} of its launcher"


def _when(shown: RunOnOneScreen) -> str:
    """When it began, and when the last was seen of it."""
    ends = [one.ended_ns or one.seen_ns for one in shown.ranks]
    last_ns = max((end for end in ends if end is not None), default=None)
    began = _moment(shown.started_ns)
    if last_ns is None:
        return began
    ran = age((last_ns - shown.started_ns) / 1e9)
    what = "when its last step ended" if not any(one.ended_ns for one in shown.ranks) else "its end"
    return f"{began}; {ran} up to {_moment(last_ns)}, {what}"


def _moment(at_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ns / 1e9))


def _ranks(shown: RunOnOneScreen) -> str:
    """Which are kept, and on which machines they ran."""
    hosts = list(dict.fromkeys(one.host for one in shown.ranks))
    where = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
    of = "" if shown.world_size is None else f" of {shown.world_size:,}"
    text = f"{len(shown.ranks):,}{of}, on {where}"
    if shown.missing_ranks:
        text += f"; nothing was exported of {rank_set(shown.missing_ranks)}"
    return text


def _endings(shown: RunOnOneScreen, room: int) -> Iterator[str]:
    """How they ended; those of one ending together, the largest group last."""
    by_words: dict[str, list[KeptRank]] = {}
    for one in shown.ranks:
        words = one.ending or "how is not known" if one.has_ended else "it ran as it was exported"
        by_words.setdefault(words, []).append(one)
    groups = sorted(by_words.items(), key=lambda item: len(item[1]))
    for at, (words, those) in enumerate(groups[:_MOST_ENDINGS]):
        ranks = [one.rank for one in those if one.rank is not None]
        of = f"rank{'s' if len(ranks) > 1 else ''} {rank_set(ranks)}: "
        told = (of if ranks and len(groups) > 1 else "") + words
        yield from _lines("" if at else "end", told, room)
    if len(groups) > _MOST_ENDINGS:
        yield named("", f"and {len(groups) - _MOST_ENDINGS} other endings")


def _figures(shown: RunOnOneScreen, room: int, *, color: bool) -> Iterator[str]:
    """What was measured."""
    yield from _lines("steps", _steps(shown), room)
    if shown.speed is not None:
        yield named("speed", cut_words(_speed(shown.speed, shown.of_rank), room - LABEL - 1))
        yield from _lines("", _slow_ranks(shown), room)
        yield from phase_lines(
            shown.speed.phases,
            room,
            lambda name, seconds, percent: f"{name} {duration(seconds)} ({percent} %)",
            color=color,
        )
    if shown.loss is not None:
        yield from _loss(shown.loss, room)
    yield from _memory(shown)


def _steps(shown: RunOnOneScreen) -> str:
    """From which to which, and of how many ranks that is not so."""
    lasts = [one.last_step for one in shown.ranks if one.last_step is not None]
    if not lasts:
        return "none on record"
    firsts = [one.first_step for one in shown.ranks if one.first_step is not None]
    text = f"up to {max(lasts):,}"
    if min(lasts) != max(lasts):
        behind = [r.rank for r in shown.ranks if r.rank is not None and r.last_step == min(lasts)]
        text += f", rank {rank_set(behind)} up to {min(lasts):,}"
    kept = sum(one.steps for one in shown.ranks)
    if not firsts:
        return f"{text}; none that has ended is kept"
    since = f", since step {min(firsts):,}" if min(firsts) > 1 else ""
    of_all = " of all ranks together" if len(shown.ranks) > 1 else ""
    return f"{text}; {kept:,} kept{of_all}{since}"


def _speed(speed: Speed, rank: int | None) -> str:
    parts = [f"{duration(speed.step_s)} each (median of {speed.steps:,})"]
    if speed.tokens_per_s is not None:
        parts.append(f"{speed.tokens_per_s:,.0f} tokens/s")
    elif speed.samples_per_s is not None:
        parts.append(f"{figure(speed.samples_per_s, 3)} samples/s")
    return f"{'' if rank is None else f'rank {rank}: '}{', '.join(parts)}"


def _slow_ranks(shown: RunOnOneScreen) -> str:
    """The slowest rank, where its steps take longer than those of most."""
    timed = [one for one in shown.ranks if one.step_s is not None and one.rank is not None]
    if len(timed) < 2:
        return ""
    seconds = sorted(one.step_s or 0.0 for one in timed)
    usual = seconds[(len(seconds) - 1) // 2]
    slowest = max(timed, key=lambda one: one.step_s or 0.0)
    if not usual or (slowest.step_s or 0.0) < _SLOWER * usual:
        return ""
    return (
        f"rank {slowest.rank} is slowest: {duration(slowest.step_s)} a step,"
        f" {(slowest.step_s or 0.0) / usual:.2f} times the median rank's"
    )


def _loss(loss: LossCourse, room: int) -> Iterator[str]:
    """The last loss, and how it came there."""
    yield loss_line(loss.first, f" at step {loss.first_step:,}", loss.last, loss.curve, room)
    words = [f"last at step {loss.last_step:,}"]
    if loss.lowest is not None and loss.lowest_step != loss.last_step:
        words.append(f"lowest {number(loss.lowest)} at step {loss.lowest_step:,}")
    yield named("", ", ".join(words))
    yield from _lines("", _not_finite(loss), room)


def _not_finite(loss: LossCourse) -> str:
    """Where the loss was no number, and since when it is none any more."""
    if not loss.not_finite:
        return ""
    steps = plural(loss.not_finite, "step")
    if loss.not_finite_since is None:
        return f"NaN or infinite in {steps}, first in step {loss.first_not_finite:,}"
    longer = ", the first on record, or longer" if loss.since_or_longer else ""
    text = f"NaN or infinite since step {loss.not_finite_since:,}{longer}: in {steps} on record"
    if loss.first_not_finite is not None and loss.first_not_finite < loss.not_finite_since:
        text += f", first in step {loss.first_not_finite:,}"
    return text


def _memory(shown: RunOnOneScreen) -> Iterator[str]:
    """The most that any rank had."""
    for name, attribute, what in (
        ("memory", "resident_bytes", "resident"),
        ("device", "device_bytes", "given out by the allocator"),
    ):
        those = [one for one in shown.ranks if getattr(one, attribute) is not None]
        if not those:
            continue
        most = max(those, key=lambda one: int(getattr(one, attribute)))
        whose = "" if most.rank is None or len(those) < 2 else f", of rank {most.rank}"
        limit = most.device_total_bytes if name == "device" else None
        of = "" if limit is None else f" of {size(limit)}"
        yield named(name, f"at most {size(getattr(most, attribute))}{of} {what}{whose}")


def _not_kept(shown: RunOnOneScreen, room: int) -> Iterator[str]:
    """What is missing, by why and in which tables."""
    lines: list[str] = []
    for what, words in _MISSING.items():
        counts: Sequence[tuple[str, int]] = [
            (t["name"], t[what]) for t in shown.not_kept if t[what]
        ]
        if counts:
            each = ", ".join(f"{name} {count:,}" for name, count in counts[:4])
            more = f" and {len(counts) - 4} more tables" if len(counts) > 4 else ""
            total = render_count(sum(count for _, count in counts))
            lines.append(f"{total} rows {words}: {each}{more}")
    for at, line in enumerate(lines or ["every row that was recorded is kept"]):
        yield from _lines("" if at else ("not kept" if lines else "kept"), line, room)


def _next(shown: RunOnOneScreen, place: str, asked: str) -> Iterator[str]:
    """What to type, and what that tells."""
    folder, run = shlex.quote(place), shlex.quote(asked)
    yield named("next", escape_controls(f"probing history diff {folder} {run} OTHER_RUN"))
    sql = f"FROM steps WHERE run = {text_literal(shown.run)}"
    if asked != shown.run:
        sql += f" AND project = {text_literal(shown.project)}"
    quoted = shlex.quote(sql) if set(sql) & set('"$`\\!') else f'"{sql}"'
    yield named("", escape_controls(f"probing history query {folder} {quoted}"))
