"""Asks for a profile, shows how far it is, and knows how to write it in each format.

Rules of this file: imported by the command `profile` as it runs.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Protocol

from ...diagnosis.device_use import DeviceUse, device_use
from ...errors import UsageError
from ...profiling import Samples, stacks_of
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
from ..render.sections import markdown_sections, render_sections

if TYPE_CHECKING:
    from ...client.base import Process
    from ...client.profile_client import StepsProfile
    from ...messages.common import ProfileProgress
    from ..output.terminal import Screen
    from ..target import Target


class Shown(Protocol):
    """A profile that can be written.

    Attributes:
        notes: What the person should know about it.
    """

    notes: tuple[str, ...]

    def render(self, form: str, screen: Screen) -> str | bytes:
        """The profile in one of the formats; of pprof as bytes."""


class ShownSteps:
    """A profile of training steps."""

    def __init__(self, process: Process, found: StepsProfile, device: DeviceUse | None) -> None:
        self.notes = found.notes
        self._label = process.label
        self._found = found
        self._device = device

    def render(self, form: str, screen: Screen) -> str | bytes:
        """See `Shown`."""
        profile, trace = self._found.profile, self._found.trace
        title = f"Profile of {self._label}, {steps_of(profile)}"
        if form == "chrome":
            return render_chrome_trace(trace)
        if form == "speedscope":
            return render_speedscope(stacks_of(trace), title=title)
        if form == "pprof":
            return render_pprof(stacks_of(trace))
        if form == "flamegraph.html":
            return render_flamegraph(stacks_of(trace), title=title)
        if form == "svg":
            return render_svg(stacks_of(trace), title=title)
        if form == "json":
            return json.dumps(dataclasses.asdict(profile), indent=2)
        head, sections = profile_head(profile, self._device), profile_sections(profile)
        if form == "markdown":
            return markdown_sections(title, head, sections)
        return render_sections(head, sections, width=screen.width, color=screen.color)


class ShownSamples:
    """A sampling profile."""

    def __init__(self, process: Process, samples: Samples) -> None:
        self.notes: tuple[str, ...] = ()
        self._label = process.label
        self._samples = samples

    def render(self, form: str, screen: Screen) -> str | bytes:
        """See `Shown`.

        Raises:
            UsageError: There is nothing to write.
        """
        samples = self._samples
        title = f"Samples of {self._label}"
        if samples.timeline is not None:
            return samples.timeline
        if not samples.stacks:
            raise UsageError(
                f"no thread of {self._label} was seen to run or wait in Python code.",
                help="`backtrace --native` shows what it does in C code.",
            )
        if form == "speedscope":
            return render_speedscope(samples, title=title)
        if form == "pprof":
            return render_pprof(samples)
        if form == "flamegraph.html":
            return render_flamegraph(samples, title=title)
        if form == "svg":
            return render_svg(samples, title=title)
        if form == "json":
            return json.dumps(dataclasses.asdict(samples), indent=2)
        head, sections = samples_head(samples), samples_sections(samples)
        if form == "markdown":
            return markdown_sections(title, head, sections)
        return render_sections(head, sections, width=screen.width, color=screen.color)


def ask_for_steps(process: Process, target: Target, steps: int) -> Shown:
    """Have steps profiled."""
    with telling(target, _sentence) as tell:
        found = process.profile(steps, timeout_s=target.timeout_s, tell=tell)
        return ShownSteps(process, found, device_use(process))


def ask_for_samples(
    process: Process, target: Target, seconds: float, hz: int, *, idle: bool, timeline: bool
) -> Shown:
    """Have stacks sampled."""

    def draw(passed: float) -> str:
        return f"sampling: {min(passed, seconds):.0f} of {seconds:g} s"

    with telling(target, draw) as tell:
        found = process.sample(seconds, hz=hz, idle=idle, timeline=timeline, tell=tell)
        return ShownSamples(process, found)


def _sentence(progress: ProfileProgress) -> str:
    if progress.state in {"idle", "waiting"}:
        return "waiting for the end of the step in progress"
    if progress.state == "ending":
        return "reading the profile"
    return f"profiling: {progress.done} of {progress.steps} steps done"
