"""What is known of a request whose answer never came.

Rules of this file: of a process that has ended its record is read, which changes no more; nobody is
asked. An agent writes down that something is asked for before it does it, and what came of it at
once: without a row nothing was done, and a row without an end leaves that open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ..errors import ProbingError, ProcessEnded, RingError
from ..linux.foreign_files import read_file
from ..messages.about.act import ActRequest, asked_of, describe
from ..messages.frozen import dataclass
from ..ring.format import OPEN
from ..ring.names import MAX_FILE_BYTES, decode_names
from ..ring.peek import RingPeek
from ..rundir.folders import ProcessFolder
from ..tables import ACTION_STATES, ACTIONS

POLL_S = 0.01
_ENDING_S = 0.5
"""How long a process may take to end once it has closed its connections."""
_MOST = 64
"""So many of the newest rows are looked through."""
_ALIKE = 200
"""By so many characters arguments are compared: those of a row are cut."""
_NOTHING = frozenset({"refused", "timed out", "failed"})
"""The states of actions that have changed nothing."""
_COLUMNS = ("action_id", "name", "arguments", "state", "step", "notes", "start_ns")


def soon(is_so: Callable[[], bool]) -> bool:
    """Whether something comes to be so within the time that a process may take to end."""
    end = time.monotonic() + _ENDING_S
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def ends_soon(folder: ProcessFolder) -> bool:
    """Whether a process has ended; its connections close a moment before."""
    return soon(lambda: not folder.is_alive())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsure:
    """What may have been done, where no answer comes to what was sent.

    Attributes:
        how_to_look: A sentence that says so, and how to look.
        of_record: Tells what came of it from the record of a process that has ended, and the moment
            by the monotonic clock at which it was sent; None where that is left to who asked.
    """

    how_to_look: str
    of_record: Callable[[ProcessFolder, int], str] | None = None

    def told(
        self, error: ProbingError, folder: ProcessFolder | None, asked_ns: int
    ) -> ProbingError:
        """The error of the lost answer, with what is known of what was sent."""
        if folder is not None and self.of_record is not None and error.is_a(ProcessEnded):
            return ProcessEnded(folder.pid, f"no answer came: {self.of_record(folder, asked_ns)}")
        error.help = f"{self.how_to_look} {error.help}".rstrip()
        return error


def unsure_of_action(request: ActRequest | None) -> Unsure:
    """What may have been done of an action; the request is None where it is of a later version."""
    return Unsure(
        how_to_look='The action may have been applied: `probing ENDPOINT query "SELECT name, state,'
        ' step, changes FROM python.actions ORDER BY seq DESC LIMIT 1"` tells, unless its record is'
        " gone.",
        of_record=lambda folder, asked_ns: came_of_action(folder, request, asked_ns),
    )


UNSURE_OF_CODE = Unsure(
    how_to_look='The code may have run: `probing ENDPOINT query "SELECT code, state, error_type'
    ' FROM python.evals ORDER BY seq DESC LIMIT 1"` tells, unless its record is gone.'
)


def came_of_action(folder: ProcessFolder, request: ActRequest | None, asked_ns: int) -> str:
    """Whether an action was applied before its process ended: a part of a sentence.

    Args:
        request: None where it is not known which action it was.
        asked_ns: When it was sent, by the monotonic clock.
    """
    asked = asked_of(request) if request is not None else []
    wanted = [(name, describe(what)) for name, what in asked]
    try:
        found = set(_told_since(folder, asked_ns, *wanted[:1]))
    except (OSError, RingError, KeyError):
        return "whether the action was applied is not known: its record cannot be read"
    if len(found) > 1:
        return "whether the action was applied is not known: there are several that it may be"
    return next(iter(found), "the action was not applied, nor is it on record")


def _told_since(
    folder: ProcessFolder, asked_ns: int, wanted: tuple[str, str] | None = None
) -> Iterator[str]:
    """What came of each action since a moment that may be the one that is wanted.

    Raises:
        OSError: Its record, or that of the texts, cannot be read.
        RingError: The record is none.
        KeyError: It has other columns.
    """
    try:
        ring = RingPeek(folder.ring(ACTIONS.name))
    except FileNotFoundError:
        card = folder.read_card()
        if card is None or any(ACTIONS.full_name in problem for problem in card.problems):
            raise  # the record is gone, or there was no room for it
        return  # it is made with the first action
    with ring:
        since_ns = asked_ns + ring.header.clock_offset_ns
        rows = [
            row for row in ring.newest(_MOST, _COLUMNS) if (row.values["start_ns"] or 0) >= since_ns
        ]
    texts = decode_names(read_file(folder.names, MAX_FILE_BYTES))
    for row in rows:
        name, arguments, notes = (
            texts[number] if (number := row.values[column] or 0) < len(texts) else None
            for column in ("name", "arguments", "notes")
        )
        told = name, _begin(arguments)
        if wanted is None or name is None or told == (wanted[0], _begin(wanted[1])):
            state = None if row.state == OPEN else row.values["state"]
            yield _sentence(row.values["action_id"], state, row.values["step"], notes)


def _begin(text: str | None) -> str:
    return (text or "")[:_ALIKE]


def _sentence(number: int, state: int | None, step: int | None, notes: str | None) -> str:
    """What came of an action, by its row."""
    if state is None or not 0 <= state < len(ACTION_STATES):
        return (
            f"whether action {number} was applied is not known: by its record it was asked for, and"
            " had not come to its end"
        )
    if ACTION_STATES[state] in _NOTHING:
        return f"action {number} was not applied{f' ({notes})' if notes else ''}"
    return f"action {number} was applied{f' before step {step}' if step is not None else ''}"
