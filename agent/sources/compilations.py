"""The live table ``python.compilations``: what torch.compile has compiled, and why once more.

Rules of this file: runs in a thread of the agent's own, for who asks; reads what torch has noted,
imports nothing and compiles nothing.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from ...messages.common import LiveRows
from ...tables.compilations import COMPILATIONS
from .shared.live_rows import live_rows_of

if TYPE_CHECKING:
    from ..live.question import LiveQuestion

Row = tuple[int | None, str | None, str | None, int | None, int | None, int | None, float | None,
            int | None, str | None, str | None]  # fmt: skip
_LONGEST = 300
_NS = 1000
_NUMBERS = re.compile(r"(\d+)/(\d+)")
_AGAIN = re.compile(r"^\d+/\d+:\s*")


def rows(_: LiveQuestion) -> LiveRows:
    """A row for each function that was compiled, or was to be."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    get = getattr(utils, "get_compilation_metrics", None)
    found = [_row(metrics) for metrics in get()] if get is not None else []
    note = None if found else "torch.compile has compiled nothing in this process"
    return live_rows_of(COMPILATIONS, found, note)


def _row(metrics: object) -> Row:
    """What torch has noted of one; older versions note less."""

    def get(name: str) -> Any:
        return getattr(metrics, name, None)

    began_us, took_s = get("start_time_us"), get("entire_frame_compile_time_s")
    numbers = _NUMBERS.search(str(get("compile_id") or get("frame_key") or ""))
    return (
        None if began_us is None else int(began_us) * _NS,
        get("co_name"),
        get("co_filename"),
        get("co_firstlineno"),
        int(numbers[1]) if numbers else None,
        int(numbers[2]) if numbers else get("cache_size"),
        None if took_s is None else float(took_s),
        get("graph_op_count"),
        _reason(get("recompile_reason")),
        _first_line(get("fail_reason")),
    )


def _reason(told: str | None) -> str | None:
    """A guard in one line, without torch's advice."""
    if not told:
        return None
    guard = _AGAIN.sub("", told.partition("(HINT")[0].partition("\nUser stack")[0])
    return _first_line(" ".join(guard.split()))


def _first_line(told: str | None) -> str | None:
    return told.strip().partition("\n")[0][:_LONGEST] if told else None
