"""One line about memory, from the newest row of python.memory.

Rules of this file: asks by SQL alone, so that processes which hang or have ended answer, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import ProbingError, ProcessEnded
from ...messages.frozen import dataclass
from ...tables import SOURCES
from ..ask.replies import Replies, tell_notes
from ..output import terminal
from ..render.memory.line import Row, render_memory_line

if TYPE_CHECKING:
    from ...client.base import Process
    from ..target import Target

_NEWEST = """
    SELECT step, micro_batch, phase, label, device, allocated_bytes, peak_bytes, reserved_bytes,
        peak_reserved_bytes, device_used_bytes, resident_bytes, cgroup_bytes, cgroup_limit_bytes,
        node_used_bytes, node_total_bytes, seq
    FROM python.memory WHERE time_ns IS NOT NULL ORDER BY seq DESC LIMIT 1
"""
_SINCE = """
    SELECT max(most) AS most FROM (
        SELECT max(coalesce(allocated_bytes, resident_bytes)) AS most
        FROM python.memory WHERE seq > {seq} AND device = '{device}'
        UNION ALL
        SELECT max(allocated_bytes) FROM python.torch_trace
        WHERE start_ns > (SELECT time_ns FROM python.memory WHERE seq = {seq}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one process has recorded.

    Attributes:
        is_over: Whether that is what it had at the look before, and no more comes.
    """

    moment: Row | None
    is_over: bool


def newest_moment(process: Process) -> Row | None:
    """The newest row; None before the first.

    Raises:
        ProbingError: The process has no record.
    """
    rows = process.query(_NEWEST).to_pylist()
    return rows[0] if rows else None


def with_peak_since(process: Process, moment: Row | None, before: Row | None) -> Row | None:
    """The same with the most that was in use since an earlier line.

    No counter is reset for it. Where the allocator's own peak has risen since, that is it; else it
    is the most of what the record has seen, at the ends of calls and phases.
    """
    if moment is None or before is None or moment["device"] != before["device"]:
        return moment
    seen = process.query(_SINCE.format(seq=before["seq"], device=before["device"])).to_pylist()
    most = seen[0]["most"]
    risen, earlier = moment["peak_bytes"], before["peak_bytes"]
    if risen is not None and earlier is not None and risen > earlier:
        most = risen
    return {**moment, "since_bytes": most}


def show_line(
    target: Target, *, every_s: float | None = None, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Print one line per process, once or every so often until nobody runs any more.

    Args:
        every_s: How long to wait between two rounds; None: there is only one.

    Returns:
        The exit code.
    """
    before: dict[str, Row | None] = {}

    def ask(process: Process) -> _Look:
        moment = newest_moment(process)
        is_known = process.label in before
        last = before.get(process.label)
        before[process.label] = moment
        if is_known and _number(last) == _number(moment) and _has_ended(process):
            return _Look(moment=moment, is_over=True)
        return _Look(moment=with_peak_since(process, moment, last), is_over=False)

    if every_s is not None:
        terminal.go_live()
    while True:
        over: list[bool] = []
        replies = Replies(target, ask)
        for reply in replies:
            over.append(reply.value.is_over)
            if reply.value.is_over:
                continue
            tell_notes(target, reply.endpoint, reply.notes)
            prefix = "" if target.is_single else f"{reply.endpoint}: "
            terminal.write(f"{prefix}{render_memory_line(reply.value.moment)}")
        if every_s is None or replies.exit_code or (over and all(over)):
            return replies.exit_code
        sleep(every_s)


def _number(moment: Row | None) -> int:
    return 0 if moment is None else moment["seq"]


def _has_ended(process: Process) -> bool:
    """Whether a process that has recorded nothing new never will."""
    try:
        process.live(SOURCES.name)
    except ProcessEnded:
        return True
    except ProbingError:  # it hangs, or runs another version: more may come
        return False
    return False
