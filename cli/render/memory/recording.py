"""What a recording of allocations says, in words and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import duration, size, size_change
from ..sections import Section, render_sections
from ..table import Heading, columns
from ..text import plural

if TYPE_CHECKING:
    from ....allocations import Difference, History, Recording
    from ....messages.about.allocation import RecordStatus

_SITES, _MODULES = 12, 6


def render_status(status: RecordStatus) -> str:
    """How a recording stands, in a sentence or two."""
    if status.state == "refused":
        return f"nothing is recorded: {status.reason}"
    if status.how == "allocator":
        if status.state == "off":
            return "the allocator keeps no history"
        return f"the allocator keeps a history of its newest {status.entries:,} events"
    cost = _cost(status.step_s, status.plain_step_s)
    cost = f"; {cost}" if cost else ""
    steps = plural(status.steps or 0, "step")
    if status.state == "off":
        return f"nothing is being recorded{cost}"
    if status.state == "recorded":
        return f"{plural(status.done or 0, 'step')} recorded{cost}; --snapshot FILE takes it"
    if status.state == "waiting":
        return f"{steps} will be recorded, from the end of the next step on"
    return f"recording: {status.done} of {steps} done{cost}"


def render_progress(status: RecordStatus) -> str:
    """How far a snapshot is."""
    if status.state == "waiting":
        return "waiting for the end of a step"
    if status.state == "ending":
        return "reading the recording"
    return f"recording: {status.done or 0} of {status.steps or 0} steps done"


def render_recording(recording: Recording, *, width: int | None, color: bool) -> str:
    """What was recorded, and the places that had the most of it."""
    from ....allocations import history_of

    histories = [history_of(recording, device) for device in range(len(recording.devices))]
    shown = [h for h in histories if h.allocations]
    head = [_head(recording)]
    head += [_line(recording, history) for history in shown]
    head += [cost] if (cost := _cost(recording.step_s, recording.plain_step_s)) else []
    sections = [_sites(recording, history, len(shown) > 1) for history in shown]
    sections += [section for history in shown if (section := _temporaries(history)) is not None]
    return render_sections(head, sections, width=width, color=color)


def _temporaries(history: History) -> Section | None:
    """The most that was there for a moment only, by module."""
    from ....allocations import temporary_peaks

    peaks = temporary_peaks(history)
    if not peaks:
        return None
    rows = [
        (each.module or "ALL TOGETHER", size(each.peak_bytes), f"{each.count:,}")
        for each in peaks[: _MODULES + 1]
    ]
    left = len(peaks) - len(rows)
    return Section(
        title="Temporary memory",
        headings=columns("temporary memory, by module", ">at most", ">made"),
        rows=tuple(rows),
        note=f"{plural(left, 'module')} more with less" if left > 0 else "",
    )


def render_difference(
    difference: Difference, names: tuple[str, str], *, width: int | None, color: bool
) -> str:
    """Two recordings side by side."""
    head = [
        _side("A", names[0], difference, 0),
        _side("B", names[1], difference, 1),
        f"peak: {size_change(difference.peaks[1] - difference.peaks[0])}",
    ]
    sections = []
    for title, changes in (("category", difference.categories), ("place", difference.sites)):
        rows = tuple(
            (
                change.name,
                *(size(number) for number in change.peaks),
                size_change(change.peaks[1] - change.peaks[0]),
                size_change(change.lasts[1] - change.lasts[0]),
            )
            for change in changes[:_SITES]
        )
        left = len(changes) - len(rows)
        note = f"{left} more {'differs' if left == 1 else 'differ'} less" if left > 0 else ""
        sections.append(Section(title=title, headings=_changed(title), rows=rows, note=note))
    return render_sections(head, sections, width=width, color=color)


def _cost(step_s: float | None, plain_step_s: float | None) -> str:
    if step_s is None or plain_step_s is None:
        return ""
    return f"a recorded step took {duration(step_s)}, one before {duration(plain_step_s)}"


def _head(recording: Recording) -> str:
    """What there is."""
    steps = ""
    if len(recording.marks) > 1:
        first, last = recording.marks[0][0], recording.marks[-1][0] - 1
        steps = f"step {first}, " if first == last else f"steps {first} to {last}, "
    return f"{steps}{plural(recording.kept, 'event')}"


def _line(recording: Recording, history: History) -> str:
    """One device."""
    return (
        f"{recording.devices[history.device]}: {size(history.first_bytes)} in use at the"
        f" beginning, {size(history.peak_bytes)} at the peak,"
        f" {size(history.last_bytes)} at the end"
    )


def _sites(recording: Recording, history: History, is_one_of_many: bool) -> Section:  # noqa: FBT001
    """The places that had the most at the peak."""
    where = f" on {recording.devices[history.device]}" if is_one_of_many else ""
    rows = tuple(
        (
            site.frame,
            size(site.peak_bytes),
            size(site.live_bytes),
            f"{site.count:,}",
            size(site.bytes),
        )
        for site in history.sites[:_SITES]
    )
    left = len(history.sites) - len(rows)
    note = f"{plural(left, 'place')} with less" if left > 0 else ""
    headings = columns(
        f"place in the program{where}", ">at the peak", ">at the end", ">made", ">bytes in all"
    )
    return Section(title="places", headings=headings, rows=rows, note=note)


def _side(letter: str, name: str, difference: Difference, number: int) -> str:
    steps = difference.steps[number]
    shape = _shape(difference.peaks[number], difference.lows[number])
    covers = "" if steps is None else f"{plural(steps, 'step')}, "
    return f"{letter} {name}: {covers}peak {size(difference.peaks[number])}, {shape}"


def _shape(peak: int, low: int) -> str:
    """Whether it is a hill or flat, as the picture of memory over time would show it."""
    share = (peak - low) / peak if peak else 0.0
    return f"{'a hill' if share > 0.1 else 'flat'}: {100 * share:.0f} % of it comes and goes"


def _changed(title: str) -> list[Heading]:
    """The headings of a table of changes."""
    numbers = (">A at its peak", ">B at its peak", ">difference", ">difference at the end")
    return columns(title, *numbers)
