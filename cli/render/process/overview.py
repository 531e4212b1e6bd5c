"""A process on one screen of 80 x 24.

Rules of this file: pure functions of their arguments. Each fact has a name at the left; what is not
known has no line. The list of modules gives way where the rest needs the room.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ....client.recent_steps import STILL, Pace
from ....cluster.job.rank_sets import rank_set
from ....units import age, duration, figure, size
from ..bars import gauge
from ..one_screen import (
    LABEL,
    column,
    loss_line,
    named,
    phase_lines,
    room_in,
    slowest_modules,
)
from ..text import cut_middle, cut_words, escape_controls

if TYPE_CHECKING:
    from ...reports.overview import Overview
    from ...reports.overview_memory import MemoryUse
    from ...reports.overview_ranks import RankStates

LINES = 23
"""A screen's, without the one that the next prompt takes."""
_MOST_FINDINGS, _MOST_LATE = 3, 4
_GAUGE, _LEAST_GAUGE = 22, 8
_RESET = "\x1b[0m"
_BOLD, _RED, _YELLOW, _GREEN, _CYAN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[36m"
_STATES = {
    "training": _GREEN,
    **dict.fromkeys(("idle", "not recorded", "no agent", "attaching"), _YELLOW),
}
_CERTAINTIES = {"certain": _RED, "likely": _YELLOW, "possible": _CYAN}
_WORDS = {"dead": "ended"}
_NEAR = 0.9
"""From this part of its limit on, memory is shown as bad."""
_DATA_BOUND = 0.3


def render_overview(
    overview: Overview, *, width: int | None, color: bool, lines: int = LINES
) -> str:
    """The screen, of so many lines at the most where the list of modules can give way."""
    room = room_in(width)
    head = [*_head(overview, room, color=color), "", *_figures(overview, room, color=color)]
    found = list(_findings(overview, room, color=color))
    foot = [*(["", *found] if found else []), "", *_next(overview)]
    left = lines - len(head) - len(foot) - 1
    modules = list(slowest_modules("own code of modules, forward", overview.modules, room))
    modules = modules[: max(0, left)]
    body = ["", *modules] if len(modules) > 1 else []
    return "\n".join((*head, *body, *foot))


def _painted(text: str, style: str, *, color: bool) -> str:
    return f"{style}{text}{_RESET}" if color and style else text


def _head(overview: Overview, room: int, *, color: bool) -> Iterator[str]:
    rank = "" if overview.rank is None else f", rank {overview.rank}"
    of = "" if overview.rank is None or not overview.world_size else f" of {overview.world_size}"
    host = f" on {escape_controls(overview.host)}" if overview.host else ""
    word = _WORDS.get(overview.state, overview.state)
    if overview.state == STILL and overview.pace is not None:
        word = f"{STILL}, for {age(overview.pace.age_s)} now"
    shown = _painted(word, _STATES.get(overview.state, _RED), color=color)
    yield f"process {overview.pid}{rank}{of}{host}: {shown}"
    yield "  " + cut_middle(escape_controls(overview.command), room - 2)
    for problem in overview.problems[:2]:
        lines = textwrap.wrap(
            escape_controls(problem), room - 2, max_lines=3, placeholder=" …",
            break_on_hyphens=False,  # of a path that is to be copied
        )  # fmt: skip
        yield from (f"  {line}" for line in lines)


def _figures(overview: Overview, room: int, *, color: bool) -> Iterator[str]:
    """One line for each thing that was measured."""
    pace = overview.pace
    if overview.doing is not None:
        lines = textwrap.wrap(escape_controls(f"it {overview.doing}"), room - LABEL - 1)
        yield from column("where", lines[:4])
    if pace is not None:
        yield named("step", _step(pace, overview, room - LABEL - 1))
        if pace.losses:
            yield from _loss(overview, pace, room)
        yield from phase_lines(
            pace.phases, room, lambda name, _, percent: f"{name} {percent} %", color=color
        )
    elif overview.state == "no agent":
        torch = {True: "it has loaded torch", False: "it has not loaded torch"}
        yield named("step", f"nothing is recorded without an agent{_of_torch(overview, torch)}")
    else:
        yield named("step", "none on record: no module of torch was called yet")
    if overview.memory is not None:
        yield from _memory(overview.memory, room, color=color)
    if overview.ranks is not None:
        yield named("ranks", cut_words(_ranks(overview.ranks), room - LABEL - 1))


def _of_torch(overview: Overview, words: Mapping[bool, str]) -> str:
    return "" if overview.has_torch is None else f"; {words[overview.has_torch]}"


def _step(pace: Pace, overview: Overview, room: int) -> str:
    """The number of the step, how long one takes, and how much goes through it."""
    parts = [f"{pace.step:,}"]
    if pace.step_s is not None:
        parts.append(f"{duration(pace.step_s)} each (median of the last {pace.counted})")
    if pace.device_s is not None:
        parts.append(f"{duration(pace.device_s)} on the device")
    if pace.tokens_per_s is not None:
        parts.append(f"{pace.tokens_per_s:,.0f} tokens/s")
    elif pace.samples_per_s is not None:
        rate = pace.samples_per_s
        parts.append(f"{rate:,.0f} samples/s" if rate >= 99.5 else f"{figure(rate, 3)} samples/s")
    if overview.state == "dead":
        parts[0] = f"{pace.step:,}, the last one on record"
    while len(", ".join(parts)) > room and len(parts) > 2:
        parts.pop()
    return ", ".join(parts)


def _loss(overview: Overview, pace: Pace, room: int) -> Iterator[str]:
    """The newest loss, and how it came there."""
    known = [loss for loss in pace.losses if loss is not None]
    since = "" if pace.first_step is None else f" at step {pace.first_step:,}"
    yield loss_line(known[0], since, known[-1], pace.losses, room)
    if overview.not_finite is not None:
        yield named("", overview.not_finite.sentence())


def _memory(memory: MemoryUse, room: int, *, color: bool) -> Iterator[str]:
    when = " when last recorded" if memory.is_old else ""
    if memory.resident is not None:
        words = f"{size(memory.resident)} resident{when}"
        share = memory.share
        if memory.is_group and memory.group is not None:
            words += f"; its cgroup {size(memory.group)} of {size(memory.limit)}{_percent(share)}"
        elif memory.limit is not None:
            words += f" of {size(memory.limit)}{_percent(share)}"
        style = _RED if share is not None and share >= _NEAR else ""
        yield named("memory", _painted(_gauged(words, share, room), style, color=color))
    if memory.device is not None:
        share = memory.device / memory.device_limit if memory.device_limit else None
        of = "" if share is None else f" of {size(memory.device_limit)}{_percent(share)}"
        words = f"{size(memory.device)} allocated{of}{when}"
        yield named("device", _gauged(words, share, room))


def _gauged(words: str, share: float | None, room: int) -> str:
    """The words behind a picture of the share, where there is room for one."""
    bar = min(_GAUGE, room - LABEL - 2 - len(words))
    return words if share is None or bar < _LEAST_GAUGE else f"{gauge(share, bar)} {words}"


def _percent(share: float | None) -> str:
    return "" if share is None else f" ({100 * share:.0f} %)"


def _ranks(ranks: RankStates) -> str:
    """How many do what, and in which steps."""
    seen = sum(len(those) for state, those in ranks.by_state if state != "missing")
    of = "" if ranks.expected is None else f" of {ranks.expected}"
    parts = [
        f"{len(those)} {_WORDS.get(state, state)}"
        + (f" ({rank_set(those)})" if len(ranks.by_state) > 1 else "")
        for state, those in ranks.by_state
    ]
    steps = ""
    if ranks.steps is not None:
        low, high = ranks.steps
        steps = f", step {low:,}" if low == high else f", steps {low:,} to {high:,}"
    return f"{seen}{of} seen{steps}: {', '.join(parts)}"


def _findings(overview: Overview, room: int, *, color: bool) -> Iterator[str]:
    """What the record shows to be wrong, the gravest first, a line each."""
    shown = overview.findings[:_MOST_FINDINGS]
    for index, finding in enumerate(shown):
        word = f"{finding.certainty}: "
        indent = " " * len(word)
        lines = textwrap.wrap(
            escape_controls(finding.summary),
            room - LABEL - 1 - len(word),
            max_lines=1 if index else 2,
            placeholder="…",
            break_on_hyphens=False,
        )
        word = _painted(word, _CERTAINTIES[finding.certainty], color=color)
        yield named("" if index else "findings", word + lines[0])
        yield from column("", (indent + line for line in lines[1:]))
    more = len(overview.findings) - len(shown)
    if more:
        yield named("", f"and {more} more")
    if overview.late:
        of = overview.judged + overview.late
        said = f"by {overview.judged} of the {of} rules that go by its record; no time was left for"
        said += f" {', '.join(overview.late_subjects[:_MOST_LATE])}"
        said += " and more" if len(overview.late_subjects) > _MOST_LATE else ""
        lines = textwrap.wrap(said + ": `doctor` looks", room - LABEL - 1)
        yield named("" if shown else "findings", lines[0])
        yield from column("", lines[1:])
    elif not shown and overview.judged:
        rules = "rule" if overview.judged == 1 else "rules"
        still = overview.state == STILL
        then = "`hang` says why no step ends" if still else "`doctor` looks at more"
        said = f"none by {overview.judged} {rules} on its record; {then}"
        yield named("findings", said)


def _next(overview: Overview) -> Iterator[str]:
    """What to type, and what that tells."""
    hints = dict.fromkeys(_hints(overview))
    commands = [f"probing {command}" for command, _ in hints]
    width = max(map(len, commands))
    for index, (command, (_, why)) in enumerate(zip(commands, hints, strict=True)):
        yield named("" if index else "next", f"{command:{width}}  {why}")


def _hints(overview: Overview) -> Iterator[tuple[str, str]]:
    """Commands by what they tell, the best first; three of them."""
    who = shlex.quote(overview.endpoint)
    if overview.state == "no agent":
        if overview.problems:  # what keeps an agent out
            yield "list --all", "the Python processes there are"
        else:
            yield f"attach {who}", "record from its next step on"
        yield f"{who} backtrace", "where it is, from outside"
        return
    if overview.state == "dead":
        yield f"{who} hang", "why it ended"
        if overview.has_stack:
            yield f"{who} backtrace", "where it was"
        if overview.pace is not None:
            yield f'{who} query "FROM steps ORDER BY step DESC"', "its last steps"
        return
    if overview.state in (STILL, "stopped", "not answering"):
        yield f"{who} hang", "why it does not go on"
        yield f"{who} backtrace", "where each thread is"
        return
    yield f"{who} doctor", "what is wrong, and what to do (about 10 s)"
    if overview.pace is not None and _is_data_bound(overview.pace):
        yield f"{who} dataloaders", "who feeds the training, and who is late"
    elif overview.modules:
        yield f"{who} profile", "what its next steps are spent on"
    yield f"{who} backtrace", "where it is"


def _is_data_bound(pace: Pace) -> bool:
    total = sum(pace.phases.values())
    return total > 0 and pace.phases.get("data_wait", 0.0) / total >= _DATA_BOUND
