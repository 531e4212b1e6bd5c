"""What is last known of an ended process: the stacks that its crash left, else its open rows.

Rules of this file: operator's side only. An open row of `python.torch_trace` is a call that had
not returned; the open rows of a thread, from the newest to the oldest, are the modules that it was
inside of, as a stack from the innermost frame to the outermost.
"""

from __future__ import annotations

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
from ..ring.reader import RingRows, RingSnapshot, read_ring
from ..rundir.folders import ProcessFolder
from ..tables import STAGES, TORCH_TRACE
from ..units import duration
from .crashes import THREAD_EXCEPTION, CrashRecord, describe, device_memory, name_link, read_crash

CRASH, OPEN_ROWS = "crash", "open rows"

_STEP = STAGES.index("step")
_COLUMNS = ("step", "module", "stage", "class", "depth", "thread_id", "start_ns", "duration_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRows:
    """The calls that had not returned.

    Attributes:
        threads: Main thread first.
        step: The step of the newest of them.
        is_between: Whether none of them is a call but the step itself, which is around all calls.
        has_ended: Whether the step had ended as well: it is the last one on record.
        is_left: Whether the agent was taken out of the process then.
        age_s: How long before the last thing on record the newest of them had begun.
        ends_ns: When that last thing was, since the epoch.
    """

    threads: tuple[ThreadStack, ...]
    step: int
    is_between: bool
    has_ended: bool
    is_left: bool
    age_s: float
    ends_ns: int


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
    """Whether anything tells what an ended process was doing; of another machine's it may."""
    return folder is None or last_known(folder) is not None


def _of_crash(folder: ProcessFolder, crash: CrashRecord) -> Backtrace:
    note = describe(crash)
    if crash.step is not None:
        note += f"; it was in step {crash.step}"
    memory = device_memory(crash.message)
    if memory is not None:
        note += f"; device memory: {memory}"
    if crash.chain:
        note += "; before it came " + ", before that ".join(map(name_link, crash.chain))
    if crash.left_out:
        note += f"; {crash.left_out} frames in the middle of its stack were not kept"
    return Backtrace(pid=folder.pid, source=CRASH, threads=crash.threads, note=note)


def _of_open_rows(folder: ProcessFolder, rows: _OpenRows, crash: CrashRecord | None) -> Backtrace:
    """The module calls that had not returned."""
    note = _note_of(rows)
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
    if rows.has_ended:
        return (
            f"it left no stack, and on its record step {rows.step} has ended, and nothing has begun"
            f" since (the record ends at {at})"
        )
    if rows.is_between:
        return (
            f"it left no stack, and on its record all module calls have returned: it was in step"
            f" {rows.step}, outside of them, {duration(rows.age_s)} after that step began (the"
            f" record ends at {at})"
        )
    return (
        "it left no stack, so these are the module calls that had not returned, from its record:"
        f" the innermost began in step {rows.step}, {duration(rows.age_s)} before the record ends"
        f" (at {at})"
    )


def _read_open_rows(folder: ProcessFolder) -> _OpenRows | None:
    """The open rows of torch_trace; None when there are none, or none that mean anything."""
    try:
        snapshot = read_ring(folder.ring(TORCH_TRACE.name), _COLUMNS)
        data = read_file(folder.names, names.MAX_FILE_BYTES)
        texts = [names.first_of(text) for text in names.decode_names(data)]
    except (OSError, RingError):
        return None
    rows = snapshot.rows
    if set(_COLUMNS) - set(rows.columns):
        return None
    places = _places(rows)
    # An agent that has closed in an orderly way leaves the last step open, and no socket: the
    # process has ended well, or had none from then on.
    card = folder.read_card()
    is_left = card is not None and TAKEN_OUT in card.problems
    if not (rows["stage"][places] != _STEP).any():
        if not (is_left or folder.socket.exists()):
            return None
        if not len(places):  # it was killed between two steps
            places = np.flatnonzero(rows["stage"] == _STEP)[-1:]
    if not len(places):
        return None
    return _assemble(folder, snapshot, places, texts, is_left=is_left)


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
    """Stacks from open rows."""
    rows = snapshot.rows
    ended = np.where(rows["duration_ns"] == NULL_INT, 0, rows["duration_ns"]) + rows["start_ns"]
    last_ns, newest = int(ended.max()), int(places[-1])
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
    threads.sort(key=lambda thread: not thread.is_main)
    return _OpenRows(
        threads=tuple(threads),
        step=int(rows["step"][newest]),
        is_between=bool((rows["stage"][places] == _STEP).all()),
        has_ended=bool(rows.states[newest] != OPEN),
        is_left=is_left,
        age_s=(last_ns - int(rows["start_ns"][newest])) / 1e9,
        ends_ns=last_ns + snapshot.header.clock_offset_ns,
    )


def _frame(rows: RingRows, place: int, texts: list[str | None]) -> Frame:
    """One call as a frame."""

    def text(column: str) -> str:
        number = int(rows[column][place])
        return (texts[number] if number < len(texts) else None) or "?"

    code = int(rows["stage"][place])
    stage = STAGES[code] if code < len(STAGES) else "?"
    func = f"step {rows['step'][place]}" if code == _STEP else f"{text('module')} ({stage})"
    func += "" if rows.states[place] == OPEN else ", which has ended"
    return Frame(func=func, file=text("class"), lineno=0, kind="module")
