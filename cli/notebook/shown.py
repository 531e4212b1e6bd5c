"""Which answer is shown how: found by the name of its class, so that none is loaded for it.

What has no picture of its own is the text that the command of the same name prints.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from ...errors import ProbingError
from .html import paragraphs, pre


def html_of(value: Any) -> str:
    """What a notebook shows in place of a value's `repr`.

    A process that has no answer any more is no failure of the notebook: its error is shown.
    """
    kinds = (kind.__name__ for kind in type(value).__mro__)
    show = next(_SHOWN[kind] for kind in kinds if kind in _SHOWN)
    try:
        return show(value)
    except ProbingError as error:
        return paragraphs([repr(value), error.message, error.help])


def _drawn(place: str, value: Any) -> str:
    """What a module of this folder makes of it, by its name and the function's."""
    module, _, name = place.partition(":")
    html: str = getattr(import_module(f".{module}", __package__), name)(value)
    return html


def _process(process: Any) -> str:
    from ..render.process.overview import render_overview
    from ..reports.overview import overview_of

    return pre(render_overview(overview_of(process), width=100, color=False))


def _job(job: Any) -> str:
    from ..render.ranks.members import render_members
    from .texts import WIDTH

    return pre(render_members(job.membership, width=WIDTH, color=False))


def _samples(samples: Any) -> str:
    from ..render.profiling.flamegraph import render_svg

    return render_svg(samples, title="Samples") if samples.stacks else pre(repr(samples))


def _text(value: Any) -> str:
    from .texts import text_of

    return pre(text_of(value))


_SHOWN: dict[str, Callable[[Any], str]] = {
    "Process": _process,
    "Job": _job,
    "Steps": partial(_drawn, "steps:steps_html"),
    "Rows": partial(_drawn, "rows:rows_html"),
    "Backtrace": partial(_drawn, "stacks:backtrace_html"),
    "MemoryReport": partial(_drawn, "memory:memory_html"),
    "Samples": _samples,
    "LiveRows": partial(_drawn, "rows:live_rows_html"),
    "object": _text,
}
