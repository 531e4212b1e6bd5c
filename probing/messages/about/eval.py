"""What travels about code that is sent to a process."""

from __future__ import annotations

from ..frozen import InNotebooks, dataclass
from ..limits import TimeLimit
from .act import Prepared

LINES_TYPE = "application/x-ndjson"
MOST_TIMES = 100_000
"""How often one eval can be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appointment:
    """All ranks of a job are to run code at one step.

    Attributes:
        meeting: The same in the requests to all of them.
        ranks: How many are asked.
    """

    meeting: str
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRequest:
    """Python code to run in the process.

    Attributes:
        now: Do not wait for a safe point of the training.
        thread: The thread whose locals it sees, by name or kernel number; None for the training
            thread.
        frame: The frame whose locals it sees, 0 the innermost of the script's; None for all.
        session: The same for all lines of one prompt, which share ``_`` and what they assign.
        assign: Whether what it assigns goes into the script.
        together: Where other ranks run it, too; else it may issue no collective.
    """

    code: str
    timeout_s: TimeLimit | None = None
    now: bool = False
    thread: str | None = None
    frame: int | None = None
    session: str | None = None
    assign: bool = False
    together: Appointment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCommit:
    """Where a rank is to run the code of an appointment, or that it is to run it by itself.

    Attributes:
        meeting: As of an `Appointment`.
        position: As of a `Commit`; None to run it by itself, as soon as may be.
        more: The same.
        waits: Whether it is held there until it is told to begin; one that hears nothing goes on.
        begins: All are held there, so that it begins.
    """

    meeting: str
    position: int | None = None
    more: int = 0
    waits: bool = False
    begins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatRequest:
    """Python code to run again and again at the ends of steps.

    Attributes:
        every: At the end of every so many steps.
        times: How often.
        timeout_s: The longest wait for a step, and run.
        thread: As of an `EvalRequest`.
        frame: The same.
        assign: The same.
    """

    code: str
    every: int = 1
    times: int = 1
    timeout_s: TimeLimit | None = None
    thread: str | None = None
    frame: int | None = None
    assign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult(InNotebooks):
    """What came of an eval.

    Attributes:
        output: What the code printed.
        value: The last expression as text.
        error: The traceback of the exception that ended it.
        error_type: The class name of that exception.
        omitted_bytes: Bytes printed beyond the limit.
        duration_s: How long the code ran.
        waited_s: How long it waited for a safe point.
        where: ``safe point`` if the training was held, else ``agent thread``.
        step: The training step at that moment, if one is counted.
        thread: The thread whose locals it saw, by name.
        left: Threads that it has left running.
        hidden: Names that it assigned and that the script still has as they were.
        notes: What became of it, such as a rate that the next step put back.
    """

    output: str
    value: str | None
    error: str | None
    error_type: str | None
    omitted_bytes: int
    duration_s: float
    waited_s: float
    where: str
    step: int | None
    thread: str | None = None
    left: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalJob:
    """A pending or running eval.

    Attributes:
        number: Which it is, counted from 1; `python.evals` has it as ``eval_id``.
        who: Who has sent it.
        code: Its beginning.
        state: ``waiting`` for a safe point; ``running``; ``left behind`` when it could not be
            interrupted in time.
        age_s: How long ago it was sent.
        place: The line that it executes; None while it waits.
        where: As of an `EvalResult`; None while it waits.
        meeting: As of an `Appointment`; None without one.
        prepared: Where the rank is, once it waits for the place.
        apart: Why it has no place in common with the others.
        held: By which commit the training stands still, until the code is told to begin.
    """

    number: int
    who: str
    code: str
    state: str
    age_s: float
    place: str | None = None
    where: str | None = None
    meeting: str | None = None
    prepared: Prepared | None = None
    apart: str | None = None
    held: EvalCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalJobs(InNotebooks):
    """All pending and running evals, the oldest first."""

    jobs: tuple[EvalJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """End a pending or running eval."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """A prompt that has ended.

    Attributes:
        session: As of an `EvalRequest`.
    """

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRequest:
    """A line that is being typed, up to the cursor.

    Attributes:
        session: As of an `EvalRequest`.
    """

    text: str
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """How the last word of a line can go on.

    Attributes:
        start: Where in the line that word begins.
        words: What can stand there.
    """

    start: int
    words: tuple[str, ...]
