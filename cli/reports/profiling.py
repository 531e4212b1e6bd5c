"""Asks for a profile, shows how far it is, and knows how to write it in each format.

Rules of this file: imported by the command `profile` as it runs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...diagnosis.device_use import device_use
from ...errors import UsageError
from ...profiling import Profile, Samples, stacks_of
from ..ask.replies import telling
from ..render.profiling.chrome_trace import render_chrome_trace
from ..render.profiling.flamegraph import render_flamegraph, render_speedscope, render_svg
from ..render.profiling.pprof import render_pprof
from ..render.profiling.tables import (
    profile_head,
    profile_sections,
    samples_head,
    samples_sections,
    steps_of,
)
from ..render.sections import Section, markdown_sections, render_sections

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.common import ProfileProgress
    from ..output.terminal import Screen
    from ..target import Target


_OF_STACKS = {
    "speedscope": render_speedscope,
    "flamegraph.html": render_flamegraph,
    "svg": render_svg,
}


class Shown:
    """A profile that can be written.

    Args:
        figures: Gives what is written as JSON.
        stacks: Gives the stacks that it is of.
        table: Gives its first lines and its sections.
        chrome: Gives it for Perfetto.

    Attributes:
        notes: What the person should know about it.
    """

    def __init__(
        self,
        title: str,
        figures: Callable[[], Profile | Samples],
        *,
        stacks: Callable[[], Samples],
        table: Callable[[], tuple[list[str], list[Section]]],
        chrome: Callable[[], str | bytes],
        notes: tuple[str, ...] = (),
    ) -> None:
        self.notes = notes
        self._title, self._figures = title, figures
        self._stacks, self._table, self._chrome = stacks, table, chrome

    def render(self, form: str, screen: Screen) -> str | bytes:
        """The profile in one of the formats; of pprof as bytes."""
        if form == "chrome":
            return self._chrome()
        if form == "pprof":
            return render_pprof(self._stacks())
        if form in _OF_STACKS:
            return _OF_STACKS[form](self._stacks(), title=self._title)
        if form == "json":
            return json.dumps(dataclasses.asdict(self._figures()), indent=2)
        head, sections = self._table()
        if form == "markdown":
            return markdown_sections(self._title, head, sections)
        return render_sections(head, sections, width=screen.width, color=screen.color)


def ask_for_steps(process: Process, target: Target, steps: int) -> Shown:
    """Have steps profiled."""
    with telling(target, _sentence) as tell:
        found = process.profile(steps, timeout_s=target.timeout_s, tell=tell)
        profile, trace, device = found.profile, found.trace, device_use(process)
        return Shown(
            f"Profile of {process.label}, {steps_of(profile)}",
            lambda: profile,
            stacks=lambda: stacks_of(trace),
            table=lambda: (profile_head(profile, device), profile_sections(profile)),
            chrome=lambda: render_chrome_trace(trace),
            notes=found.notes,
        )


def ask_for_samples(
    process: Process, target: Target, seconds: float, hz: int, *, idle: bool, timeline: bool
) -> Shown:
    """Have stacks sampled."""

    def draw(passed: float) -> str:
        return f"sampling: {min(passed, seconds):.0f} of {seconds:g} s"

    with telling(target, draw) as tell:
        found = process.sample(seconds, hz=hz, idle=idle, timeline=timeline, tell=tell)

    def some() -> Samples:
        if not found.stacks:
            raise UsageError(
                f"no thread of {process.label} was seen to run or wait in Python code.",
                help="`backtrace --native` shows what it does in C code.",
            )
        return found

    return Shown(
        f"Samples of {process.label}",
        some,
        stacks=some,
        table=lambda: (samples_head(some()), samples_sections(found)),
        chrome=lambda: found.timeline or "",
    )


def _sentence(progress: ProfileProgress) -> str:
    if progress.state in {"idle", "waiting"}:
        return "waiting for the end of the step in progress"
    if progress.state == "ending":
        return "reading the profile"
    return f"profiling: {progress.done} of {progress.steps} steps done"
