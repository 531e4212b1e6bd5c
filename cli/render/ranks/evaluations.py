"""What the same code came to on many ranks, equal results once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....cluster.ranks.naming import Rank, rank_words
from ..process.evaluation import render_result
from ..text import escape_lines

if TYPE_CHECKING:
    from ....cluster.ranks.evaluations import SameResult
    from ....messages.common import EvalResult

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_STEPS_NAMED = 4


def render_results(folded: Sequence[SameResult], *, color: bool = False) -> str:
    """One line for each result that takes one line, the odd ranks first."""
    steps = {step for one in folded for step in one.steps}
    heads = [_head(one, tells_step=len(steps) > 1) for one in folded]
    width = max((len(head) for head in heads), default=0)
    lines = []
    for head, one in zip(heads, folded, strict=True):
        text = _text(one)
        padded = head if "\n" in text else head.ljust(width)
        shown = f"{_BOLD}{padded}{_PLAIN}" if color and one.is_odd else padded
        if "\n" in text:
            lines += [shown, *(f"  {line}" for line in text.splitlines())]
        else:
            lines.append(f"{shown}  {text}")
    return "\n".join(lines)


def plain_results(results: Mapping[Rank, EvalResult]) -> list[dict[str, Any]]:
    """The results as parts of JSON, rank by rank."""
    return [{"rank": rank, **dataclasses.asdict(result)} for rank, result in results.items()]


def _head(one: SameResult, *, tells_step: bool) -> str:
    """The ranks, whether they differ from most, and when they ran it."""
    verb = "differs" if len(one.ranks) == 1 else "differ"
    odd = f" {verb}" if one.is_odd else ""
    if not (tells_step and one.steps):
        return f"{rank_words(one.ranks)}{odd}:"
    few = len(one.steps) <= _STEPS_NAMED
    steps = ", ".join(map(str, one.steps)) if few else f"{one.steps[0]} to {one.steps[-1]}"
    noun = "step" if len(one.steps) == 1 else "steps"
    return f"{rank_words(one.ranks)}{odd} (at {noun} {steps}):"


def _text(one: SameResult) -> str:
    """What it printed, gave and raised."""
    result = one.result
    parts = [escape_lines(render_result(result).rstrip("\n"))]
    if result.omitted_bytes:
        parts.append(f"… {result.omitted_bytes:,} more bytes of output were not kept")
    if result.error:
        parts.append(escape_lines(result.error.rstrip("\n")))
    return "\n".join(filter(None, parts)) or "(no output)"
