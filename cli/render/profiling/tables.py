"""What a profile says, in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ....diagnosis.device_use import DeviceUse, sample_words
from ....units import duration
from ..sections import Section
from ..table import columns
from ..text import escape_controls, plural
from .kernel_names import short_names

if TYPE_CHECKING:
    from ....profiling import Kernel, Profile, Samples

_ROWS = 15
_GAPS = 5
_DATA_BOUND = 0.2
"""From this share of a step on, waiting for data is told before all else."""
_PHASES = {
    "data_wait": "waiting for data",
    "to_device": "moving it to the device",
    "gradients": "work on gradients",
    "gradient_sync": "waiting for other ranks",
}
"""What phases are called; the others by their own names."""
_SHARE, _CALLS = ">share", ">calls/step"


def profile_head(profile: Profile, device: DeviceUse | None = None) -> list[str]:
    """What was profiled, and how much of that time anything ran.

    Args:
        device: What is on record of the device beside the profile.
    """
    count = len(profile.steps)
    times = [_time(step.duration_ns) for step in profile.steps[:8]]
    each = f" in all ({', '.join(times)}{', …' if count > 8 else ''})" if count > 1 else ""
    lines = [f"{steps_of(profile)}: {_time(profile.wall_ns)}{each}"]
    if profile.phases:
        spent = ", ".join(
            f"{_PHASES.get(each.phase, each.phase)} {render_share(each.share, 1)}"
            for each in profile.phases
        )
        lines.append(f"each step is {spent}")
    waiting = next((each for each in profile.phases if each.phase == "data_wait"), None)
    if waiting is not None and waiting.share >= _DATA_BOUND:
        lines.insert(
            0,
            f"the training waits for data {render_share(waiting.share, 1)} of the time,"
            f" {_time(waiting.time_ns / count)} a step: `dataloaders` says why; what"
            " follows is about the rest",
        )
    what = "the accelerator was busy" if profile.on == "device" else "operators ran on the CPU"
    return [
        *lines,
        f"{what} for {render_share(profile.busy_ns, profile.wall_ns)} of it; the rest is"
        f" {plural(profile.gap_count, 'gap')}",
        *_queues(profile),
        *_device(device),
    ]


def _queues(profile: Profile) -> Iterator[str]:
    """What ran at once on the device, and how it was launched."""
    queues, steps = profile.queues, len(profile.steps)
    if queues is None:
        return
    words = [
        f"several things ran there at once for {render_share(queues.several_ns, profile.wall_ns)}"
    ]
    if queues.communication_ns:
        words.append(
            f"communication took {_time(queues.communication_ns / steps)} a step, of it"
            f" {_time(queues.exposed_ns / steps)} with nothing beside it"
        )
    yield "; ".join(words)
    if queues.launches:
        begins = (
            ""
            if queues.delay_ns is None
            else (f"; a kernel begins {_time(queues.delay_ns)} after its launch, in the middle")
        )
        yield f"{_per_step(queues.launches, steps)} launches a step{begins}"


def _device(device: DeviceUse | None) -> Iterator[str]:
    """What the device does, where one is in use."""
    if device is None:
        return
    if device.sample is not None:
        yield escape_controls(sample_words(device.sample))
    yield from device.step_lines()


def steps_of(profile: Profile) -> str:
    """Which steps were profiled."""
    first, last = profile.steps[0].step, profile.steps[-1].step
    return f"step {first}" if first == last else f"steps {first} to {last}"


def profile_sections(profile: Profile) -> list[Section]:
    """The tables of a profile."""
    sections = [_categories(profile)]
    kernels = [k for k in profile.kernels if k.kind == "kernel"]
    operators = [k for k in profile.kernels if k.kind == "operator"]
    names = short_names(kernel.name for kernel in kernels)
    if kernels:
        sections.append(_kernels(profile, kernels, "kernel", "time/step", names))
    sections.append(_kernels(profile, operators, "operator", "self CPU/step", {}))
    if profile.modules:
        sections.append(_modules(profile))
    if profile.modules and profile.module_kernels:
        sections.append(_module_kernels(profile, names))
    if profile.gaps:
        sections.append(_gaps(profile, names))
    return sections


def samples_head(samples: Samples) -> list[str]:
    """What was sampled."""
    which = "every thread" if samples.idle else "threads that use the processor"
    return [
        f"{plural(samples.total, 'stack')} of {which}, at {samples.hz} Hz for"
        f" {samples.seconds:g} s, from outside"
    ]


def samples_sections(samples: Samples) -> list[Section]:
    """The tables of a sampling profile."""
    from ....profiling import frame_times

    total = samples.total
    frames = frame_times(samples)
    threads: dict[str, int] = {}
    for stack, weight in samples.stacks:
        threads[stack[0]] = threads.get(stack[0], 0) + weight
    return [
        Section(
            title="Threads",
            headings=columns("thread", _SHARE),
            rows=tuple(
                (name, render_share(weight, total))
                for name, weight in sorted(threads.items(), key=lambda item: -item[1])[:_ROWS]
            ),
        ),
        Section(
            title="Functions",
            headings=columns("function", ">own", ">with calls"),
            rows=tuple(
                (
                    _short(frame.frame),
                    render_share(frame.own, total),
                    render_share(frame.total, total),
                )
                for frame in frames[:_ROWS]
            ),
            note=_more(len(frames), "function"),
        ),
    ]


def _time(nanoseconds: float) -> str:
    return duration(nanoseconds * 1e-9)


def render_share(part: float, whole: float) -> str:
    """A part of a whole in percent; nothing where there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole else ""


def _categories(profile: Profile) -> Section:
    steps = len(profile.steps)
    return Section(
        title="Kinds of work",
        headings=columns("kind of work", _SHARE, ">time/step", _CALLS),
        rows=tuple(
            (
                each.category,
                render_share(each.share, 1),
                _time(each.time_ns / steps),
                _per_step(each.calls, steps),
            )
            for each in profile.categories
        ),
    )


def _kernels(
    profile: Profile, kernels: list[Kernel], noun: str, time: str, names: Mapping[str, str]
) -> Section:
    steps = len(profile.steps)
    return Section(
        title=f"{noun.capitalize()}s",
        headings=columns(noun, _SHARE, f">{time}", _CALLS, "kind"),
        rows=tuple(
            (
                names.get(
                    each.name, each.name.removeprefix("autograd::engine::evaluate_function: ")
                ),
                render_share(each.share, 1),
                _time((each.self_cpu_ns or each.self_device_ns or 0) / steps),
                _per_step(each.calls, steps),
                each.category,
            )
            for each in kernels[:_ROWS]
        ),
        note=_more(len(kernels), noun),
    )


def _modules(profile: Profile) -> Section:
    steps = len(profile.steps)
    return Section(
        title="Modules",
        headings=columns("module", "stage", _SHARE, ">time/step"),
        rows=tuple(
            (
                each.module or "(none)",
                each.stage or "",
                render_share(each.share, 1),
                _time(each.time_ns / steps),
            )
            for each in profile.modules[:_ROWS]
        ),
        note=_more(len(profile.modules), "module and stage", "modules and stages"),
    )


def _module_kernels(profile: Profile, names: Mapping[str, str]) -> Section:
    steps = len(profile.steps)
    return Section(
        title="Kernels by module",
        headings=columns("module", "stage", "kernel", _SHARE, ">time/step", _CALLS),
        rows=tuple(
            (
                each.module or "(none)",
                each.stage or "",
                names.get(each.name, each.name),
                render_share(each.share, 1),
                _time(each.time_ns / steps),
                _per_step(each.calls, steps),
            )
            for each in profile.module_kernels[:_ROWS]
        ),
        note=_more(len(profile.module_kernels), "kernel of a module", "kernels of modules"),
    )


def _gaps(profile: Profile, names: Mapping[str, str]) -> Section:
    idle_ns = profile.wall_ns - profile.busy_ns
    shown = profile.gaps[:_GAPS]
    rest = f"; {_time(idle_ns / len(profile.steps))} of each step is in gaps"
    return Section(
        title="Longest gaps",
        headings=columns(">longest gaps", ">step", "after", "before", "inside"),
        rows=tuple(
            (
                _time(gap.duration_ns),
                str(gap.step),
                names.get(gap.before or "", gap.before or ""),
                names.get(gap.after or "", gap.after or ""),
                gap.inside or "",
            )
            for gap in shown
        ),
        note=f"{plural(profile.gap_count, 'gap')} in all{rest}",
    )


def _short(frame: str) -> str:
    """A frame, ``function (file:line)``, with the end of its file's path."""
    function, opening, place = frame.rpartition(" (")
    return f"{function}{opening}{'/'.join(place.split('/')[-2:])}"


def _per_step(calls: int, steps: int) -> str:
    value = calls / steps
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _more(count: int, noun: str, nouns: str = "") -> str:
    """How many rows are not shown."""
    more = count - _ROWS
    if more <= 0:
        return ""
    name = noun if more == 1 else (nouns or f"{noun}s")
    return f"… {more:,} more {name}"
