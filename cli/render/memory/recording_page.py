"""A page that shows a recording of allocations: what was in use, when, and by whom.

Rules of this file: pure functions of their arguments. The page loads nothing: data, style and
script are in it. All allocations are in the data, as columns; what is too small to be seen is drawn
together by the script, which says so.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text import escape_controls

if TYPE_CHECKING:
    from ....allocations import History, Recording
    from ....allocations.recording import Stack

_PAGE = Path(__file__).with_name("recording_page.html")
_UNKNOWN = "unknown"


def render_page(recording: Recording, *, title: str) -> str:
    """The page."""
    from ....allocations import history_of

    stacks = _Stacks()
    devices = []
    for number, name in enumerate(recording.devices):
        history = history_of(recording, number)
        if history.allocations:
            devices.append({"name": name, **_device(recording, history, stacks)})
    data = {
        "devices": devices,
        "frames": stacks.frames,
        "stacks": stacks.stacks,
        "cut": recording.cut,
    }
    # In a script, `<` could end it; in JSON it may be written so.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    page = _PAGE.read_text("utf-8")
    return page.replace("TITLE", html.escape(title)).replace("null /* DATA */", text)


def _device(recording: Recording, history: History, stacks: _Stacks) -> dict[str, Any]:
    """One device's allocations, as columns."""
    from ....allocations.history import site_of

    sites: dict[str, int] = {}
    categories: dict[str, int] = {}
    modules: dict[str, int] = {}
    began_ns = recording.marks[0][1] if recording.marks else None
    found: dict[str, list[int | None]] = {name: [] for name in _COLUMNS}
    for one in history.allocations:
        event = one.event
        made_ns = None if one.is_older else event.time_ns
        site = escape_controls(site_of(event.stack, is_older=one.is_older))
        row = (
            one.start,
            -1 if one.end is None else one.end,
            event.bytes,
            sites.setdefault(site, len(sites)),
            categories.setdefault(event.category or _UNKNOWN, len(categories)),
            modules.setdefault(event.module or "", len(modules)),
            stacks.number(event.stack),
            _since(made_ns, began_ns),
            _since(one.freed_ns, began_ns),
        )
        for name, value in zip(_COLUMNS, row, strict=True):
            found[name].append(value)
    return {
        **found,
        "events": history.events,
        "peak": history.peak_bytes,
        "peakAt": history.peak_at,
        "sites": list(sites),
        "categories": [escape_controls(name) for name in categories],
        "modules": [escape_controls(name) for name in modules],
        "steps": _steps(recording, history),
    }


_COLUMNS = ("start", "end", "bytes", "site", "category", "module", "stack", "made", "freed")


def _since(time_ns: int | None, began_ns: int | None) -> int | None:
    """Microseconds since the recording began."""
    return None if time_ns is None or began_ns is None else (time_ns - began_ns) // 1000


def _steps(recording: Recording, history: History) -> list[list[int]]:
    """Each step with the number of the first event in it."""
    made = [one for one in history.allocations if not one.is_older and one.event.time_ns]
    found = []
    for step, time_ns in recording.marks:
        later = (one.start for one in made if (one.event.time_ns or 0) >= time_ns)
        found.append([step, min(later, default=history.events)])
    return found


class _Stacks:
    """The stacks that are shown, each once, as numbers of frames."""

    def __init__(self) -> None:
        self.frames: list[str] = []
        self.stacks: list[list[int]] = []
        self._frames: dict[str, int] = {}
        self._stacks: dict[Stack, int] = {}

    def number(self, stack: Stack) -> int:
        """The number of a stack."""
        from ....allocations.history import frame_text

        known = self._stacks.get(stack)
        if known is None:
            known = self._stacks[stack] = len(self.stacks)
            self.stacks.append([self._frame(escape_controls(frame_text(f))) for f in stack])
        return known

    def _frame(self, text: str) -> int:
        number = self._frames.get(text)
        if number is None:
            number = self._frames[text] = len(self.frames)
            self.frames.append(text)
        return number
