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

if TYPE_CHECKING:
    from ..live.question import LiveQuestion

Row = tuple[int | None, str | None, str | None, int | None, int | None, int | None, str,
            float | None, int | None, str | None, str | None]  # fmt: skip
_LONGEST = 300
_NS = 1000
_NUMBERS = re.compile(r"(\d+)/(\d+)")
_AGAIN = re.compile(r"^\d+/\d+:\s*")


def rows(_: LiveQuestion) -> LiveRows:
    """A row for each function that was compiled, or was to be."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    get = getattr(utils, "get_compilation_metrics", None)
    noted = list(get()) if get is not None else []
    forward = {key: one for one in noted if (key := _compile_id(one)) and not _is_backward(one)}
    found = [_row(one, forward.get(_compile_id(one), one)) for one in noted]
    note = None if found else "torch.compile has compiled nothing in this process"
    return LiveRows.of(COMPILATIONS, found, note)


def _compile_id(metrics: object) -> str:
    """The number of a graph, which its gradients have, too; empty where torch gives none."""
    found = getattr(metrics, "compile_id", None) or getattr(metrics, "frame_key", None)
    return str(found or "")


def _is_backward(metrics: object) -> bool:
    return getattr(metrics, "is_forward", None) is False


def _row(metrics: object, forward: object) -> Row:
    """What torch has noted of one; older versions note less.

    Args:
        forward: The same for the graph whose gradients it computes, where that is on record.
    """

    def get(name: str, of: object = metrics) -> Any:
        return getattr(of, name, None)

    began_us, took_s = get("start_time_us"), get("entire_frame_compile_time_s")
    numbers = _NUMBERS.search(_compile_id(metrics))
    return (
        None if began_us is None else int(began_us) * _NS,
        get("co_name", forward),
        get("co_filename", forward),
        get("co_firstlineno", forward),
        int(numbers[1]) if numbers else None,
        int(numbers[2]) if numbers else get("cache_size"),
        "backward" if _is_backward(metrics) else "forward",
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
