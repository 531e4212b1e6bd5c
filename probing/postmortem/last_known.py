"""What is last known of an ended process: the stacks that its crash left, else its open rows.

Rules of this file: operator's side only. An open row of `python.torch_trace` is a call that had
not returned; the open rows of a thread, from the newest to the oldest, are the modules that it was
inside of, as a stack from the innermost frame to the outermost.
"""

from __future__ import annotations

import contextlib
import time

import numpy as np
import numpy.typing as npt

from ..errors import RingError
from ..linux.foreign_files import read_file
from ..messages.card import TAKEN_OUT
from ..messages.common import Backtrace, Frame, ThreadStack
from ..messages.frozen import dataclass
from ..ring import names
from ..ring.format import NULL_INT, OPEN
from ..ring.peek import RingPeek, newest_row
from ..ring.reader import RingRows, RingSnapshot, read_ring
from ..rundir.folders import ProcessFolder
from ..tables import EVALUATIONS, STAGES, STALLS, TABLES, TORCH_TRACE
from ..units import duration
from .crashes import THREAD_EXCEPTION, CrashRecord, describe, device_memory, name_link, read_crash
from .terminations import termination_of

CRASH, OPEN_ROWS = "crash", "open rows"
_MAX_NS = 2**62
_MOST_EVALUATIONS = 64
_AT_ONCE_NS, _LEAST_S = 1_000_000_000, 5e-7
"""A SIGTERM that comes so soon after the last thing on record need not be told apart from it, nor
what is so close to it that no clock tells them apart."""

_STEP = STAGES.index("step")
_COLUMNS = ("step", "module", "stage", "class", "depth", "thread_id", "start_ns", "duration_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRows:
    """The calls that had not returned.

    Attributes:
        threads: Main thread first; none where not even a step was under way.
        step: The step of the newest of them.
        is_between: Whether none of them is a call but the step itself, which is around all calls.
        has_ended: Whether the step had ended as well, and nothing of another had begun.
        is_left: Whether the agent was taken out of the process then.
        age_s: How long before the last thing on record the newest of them had begun, or the step
            had ended.
        ends_ns: When that last thing was, since the epoch.
        asked_s: How long after that it was asked to end; None where no SIGTERM is on record.
    """

    threads: tuple[ThreadStack, ...]
    step: int
    is_between: bool
    has_ended: bool
    is_left: bool
    age_s: float
    ends_ns: int
    asked_s: float | None


def last_known(folder: ProcessFolder) -> Backtrace | None:
    """What an ended process was doing; None when nothing tells."""
    crash = read_crash(folder)
    if crash is not None and crash.kind != THREAD_EXCEPTION:
        return _of_crash(folder, crash)
    rows = _read_open_rows(folder)
    if rows is not None:
        return _of_open_rows(folder, rows, crash)
    return _of_crash(folder, crash) if crash is not None else None


def has_last_stack(folder: ProcessFolder | None) -> bool:
    """Whether anything shows what an ended process was doing; of another machine's it may."""
    known = None if folder is None else last_known(folder)
    return folder is None or (known is not None and bool(known.threads))


def _of_crash(folder: ProcessFolder, crash: CrashRecord) -> Backtrace:
    note = describe(crash) + _step_of(folder, crash)
    memory = device_memory(crash.message)
    if memory is not None:
        note += f"; device memory: {memory}"
    if crash.chain:
        note += "; before it came " + ", before that ".join(map(name_link, crash.chain))
    if crash.left_out:
        note += f"; {crash.left_out} frames in the middle of its stack were not kept"
    return Backtrace(pid=folder.pid, source=CRASH, threads=crash.threads, note=note)


def _step_of(folder: ProcessFolder, crash: CrashRecord) -> str:
    """In which step it was, or behind which."""
    if crash.step is None:
        return ""
    snapshot = _read_trace(folder)
    behind = None if snapshot is None else _behind(folder, snapshot.rows, crash.step)
    if snapshot is None or behind is None:
        return f"; it was in step {crash.step}"
    rows, since = snapshot.rows, ""
    if crash.monotonic_ns is not None:
        ended_ns = int(rows["start_ns"][behind] + rows["duration_ns"][behind])
        since = f" {duration(max(0, crash.monotonic_ns - ended_ns) / 1e9)} before"
    return f"; its last step, {rows['step'][behind]}, had ended{since}"


def _of_open_rows(folder: ProcessFolder, rows: _OpenRows, crash: CrashRecord | None) -> Backtrace:
    """What was open on its record."""
    note = _note_of(rows)
    if rows.asked_s is not None:
        note += f"; {duration(rows.asked_s)} after that it was asked to end by a SIGTERM"
    if crash is not None:
        note += f"; {describe(crash)}"
    return Backtrace(pid=folder.pid, source=OPEN_ROWS, threads=rows.threads, note=note)


def _note_of(rows: _OpenRows) -> str:
    """What they are, in a sentence."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(rows.ends_ns / 1e9))
    if rows.is_left:
        where = "outside of all module calls" if rows.is_between else "inside these module calls"
        then = f"step {rows.step} had ended" if rows.has_ended else f"it was in step {rows.step}"
        then += "" if rows.has_ended else f", {where},"
        return f"{then} as {TAKEN_OUT}, and nothing is on record since (the record ends at {at})"
    before = f"{duration(rows.age_s)} before" if rows.age_s >= _LEAST_S else "as"
    until = f"{before} the record ends (at {at})"
    if rows.has_ended:
        return (
            f"it left no stack, and nothing is open on its record: step {rows.step} was the last,"
            f" and had ended {until}"
        )
    if rows.is_between:
        return (
            f"it left no stack, and no module call is open on its record, only step {rows.step},"
            f" which had begun {until}"
        )
    return (
        "it left no stack, so these are the module calls that had not returned, from its record:"
        f" the innermost began in step {rows.step}, {until}"
    )


def _read_open_rows(folder: ProcessFolder) -> _OpenRows | None:
    """The open rows of torch_trace; None when there are none, or none that mean anything."""
    snapshot = _read_trace(folder)
    try:
        data = read_file(folder.names, names.MAX_FILE_BYTES)
        texts = [names.first_of(text) for text in names.decode_names(data)]
    except OSError:
        return None
    if snapshot is None:
        return None
    rows = snapshot.rows
    places = _places(rows)
    # An agent that has closed in an orderly way leaves the last step open, and no socket: the
    # process has ended well, or had none from then on.
    card = folder.read_card()
    is_left = card is not None and TAKEN_OUT in card.problems
    if not (rows["stage"][places] != _STEP).any():
        if not (is_left or folder.socket.exists()):
            return None
        behind = _behind(folder, rows, int(rows["step"][places[-1]]) if len(places) else None)
        places = places if behind is None else np.array([behind])
    if not len(places):
        return None
    return _assemble(folder, snapshot, places, texts, is_left=is_left)


def _read_trace(folder: ProcessFolder) -> RingSnapshot | None:
    """The rows of torch_trace; None where they cannot be read."""
    try:
        snapshot = read_ring(folder.ring(TORCH_TRACE.name), _COLUMNS)
    except (OSError, RingError):
        return None
    return None if set(_COLUMNS) - set(snapshot.rows.columns) else snapshot


def _behind(folder: ProcessFolder, rows: RingRows, step: int | None) -> int | None:
    """Where the last step is, by its row, if it has ended and nothing of the next has begun.

    The agent counts the next step, and opens its row, as one ends, whether it comes or not; and an
    evaluation behind the last step is no part of any.

    Args:
        step: The one that counts as in progress; None for none.
    """
    ended = np.flatnonzero((rows["stage"] == _STEP) & (rows.states != OPEN))
    if not len(ended):
        return None
    begun = (rows["stage"] != _STEP) & (rows["step"] == (-1 if step is None else step))
    begun &= rows["start_ns"] < _evaluated_ns(folder, step)
    return None if begun.any() or rows["step"][ended[-1]] == step else int(ended[-1])


def _evaluated_ns(folder: ProcessFolder, step: int | None) -> int:
    """When the first evaluation before a step began, by the monotonic clock; else no time."""
    found = [_MAX_NS]
    with contextlib.suppress(OSError, RingError), RingPeek(folder.ring(EVALUATIONS.name)) as ring:
        found += [
            (row.values["start_ns"] or 0) - row.clock_offset_ns
            for row in ring.newest(_MOST_EVALUATIONS, ("step", "start_ns"))
            if row.values["step"] == step
        ]
    return min(found)


def _places(rows: RingRows) -> npt.NDArray[np.int64]:
    """Where the calls are that had not returned, oldest first.

    A row that was never completed although its call is over is told by a later one: a thread that
    calls a module at some depth has left all that it had called at that depth or below.
    """
    found = [np.empty(0, np.int64)]
    group = rows["thread_id"].astype(np.int64) << 8 | rows["stage"]
    for number in np.unique(group[rows.states == OPEN]):
        members = np.flatnonzero(group == number)
        depths = rows["depth"][members].astype(np.int64)
        later = np.minimum.accumulate(depths[::-1])[::-1]
        outer = np.append(later[1:], np.iinfo(np.int64).max)
        found.append(members[(rows.states[members] == OPEN) & (depths < outer)])
    return np.sort(np.concatenate(found))


def _assemble(
    folder: ProcessFolder,
    snapshot: RingSnapshot,
    places: npt.NDArray[np.int64],
    texts: list[str | None],
    *,
    is_left: bool,
) -> _OpenRows:
    """What is told of these rows."""
    rows, offset_ns = snapshot.rows, snapshot.header.clock_offset_ns
    ended = np.where(rows["duration_ns"] == NULL_INT, 0, rows["duration_ns"]) + rows["start_ns"]
    newest = int(places[-1])
    has_ended = bool(rows.states[newest] != OPEN)
    ends_ns = max(int(ended.max()) + offset_ns, _newest_ns(folder))
    since_ns = int((ended if has_ended else rows["start_ns"])[newest]) + offset_ns
    return _OpenRows(
        threads=() if has_ended else _threads(folder, rows, places, texts),
        step=int(rows["step"][newest]),
        is_between=bool((rows["stage"][places] == _STEP).all()),
        has_ended=has_ended,
        is_left=is_left,
        age_s=max(0, ends_ns - since_ns) / 1e9,
        ends_ns=ends_ns,
        asked_s=_asked_s(folder, ends_ns),
    )


def _newest_ns(folder: ProcessFolder) -> int:
    """When the newest row that the process has written began, or ended; 0 without any."""
    found = [0]
    for table in TABLES:
        if table.kind == "recorded" and table is not STALLS:  # which is a node server's
            row = newest_row(folder, table.name)
            values = {} if row is None else row.values
            began_ns = values.get("start_ns") or values.get("time_ns") or 0
            found.append(began_ns + (values.get("duration_ns") or 0))
    return min(max(found), _MAX_NS)


def _asked_s(folder: ProcessFolder, ends_ns: int) -> float | None:
    """How long after the last thing on record a SIGTERM came, where that tells more than it."""
    asked = termination_of(folder, None)
    after_ns = 0 if asked is None else asked.when_ns - ends_ns
    return after_ns / 1e9 if after_ns > _AT_ONCE_NS else None


def _threads(
    folder: ProcessFolder,
    rows: RingRows,
    places: npt.NDArray[np.int64],
    texts: list[str | None],
) -> tuple[ThreadStack, ...]:
    """The stacks of all threads, main thread first."""
    by_thread: dict[int, list[int]] = {}
    for place in reversed(places.tolist()):
        by_thread.setdefault(int(rows["thread_id"][place]), []).append(place)
    threads = []
    for number, inside in by_thread.items():
        inside.sort(key=lambda place: rows["stage"][place] == _STEP)  # the step is around all
        is_main = number == folder.pid
        threads.append(
            ThreadStack(
                thread_id=number,
                name="MainThread" if is_main else f"thread {number}",
                is_main=is_main,
                frames=tuple([_frame(rows, place, texts) for place in inside]),
            )
        )
    return tuple(sorted(threads, key=lambda thread: not thread.is_main))


def _frame(rows: RingRows, place: int, texts: list[str | None]) -> Frame:
    """One call as a frame."""

    def text(column: str) -> str:
        number = int(rows[column][place])
        return (texts[number] if number < len(texts) else None) or "?"

    code = int(rows["stage"][place])
    stage = STAGES[code] if code < len(STAGES) else "?"
    func = f"step {rows['step'][place]}" if code == _STEP else f"{text('module')} ({stage})"
    return Frame(func=func, file=text("class"), lineno=0, kind="module")
