"""Which answer is shown how: found by the name of its class, so that none is loaded for it.

What has no picture of its own is the text that the command of the same name prints.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _process(process: Any) -> str:
    from ..render.process.overview import render_overview
    from ..reports.overview import overview_of

    return pre(render_overview(overview_of(process), width=100, color=False))


def _job(job: Any) -> str:
    from ..render.ranks.members import render_members
    from .texts import WIDTH

    return pre(render_members(job.membership, width=WIDTH, color=False))


def _rows(rows: Any) -> str:
    from .rows import rows_html

    return rows_html(rows)


def _steps(steps: Any) -> str:
    from .steps import steps_html

    return steps_html(steps)


def _backtrace(backtrace: Any) -> str:
    from .stacks import backtrace_html

    return backtrace_html(backtrace)


def _memory(report: Any) -> str:
    from .memory import memory_html

    return memory_html(report)


def _samples(samples: Any) -> str:
    from ..render.profiling.flamegraph import render_svg

    return render_svg(samples, title="Samples") if samples.stacks else pre(repr(samples))


def _live_rows(live: Any) -> str:
    from .rows import live_rows_html

    return live_rows_html(live)


def _text(value: Any) -> str:
    from .texts import text_of

    return pre(text_of(value))


_SHOWN: dict[str, Callable[[Any], str]] = {
    "Process": _process,
    "Job": _job,
    "Steps": _steps,
    "Rows": _rows,
    "Backtrace": _backtrace,
    "MemoryReport": _memory,
    "Samples": _samples,
    "LiveRows": _live_rows,
    "object": _text,
}
