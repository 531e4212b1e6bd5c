"""What a row and a cell of the matrix are.

Rules of this file: records only; the rows themselves are in `rows`, and `runs` runs them.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import NamedTuple

UNDISTURBED = "ready\n"
"""What a program under test has printed that nobody has disturbed."""


class Question(NamedTuple):
    """A column: one thing to ask a process.

    Attributes:
        title: The heading of its column.
        argv: The arguments of the command.
        is_of_agent: Whether the process has had the agent from its start.
        may_disturb: Whether the process may go on with what it was stuck in afterwards.
    """

    title: str
    argv: tuple[str, ...]
    is_of_agent: bool
    may_disturb: bool = False


_COUNT = "SELECT count(*) AS n FROM python.steps WHERE duration IS NOT NULL"
_FRAMES = "SELECT thread_name, func, kind, source FROM python.backtrace"

STRANGE_BACKTRACE = Question("backtrace", ("{pid}", "backtrace"), is_of_agent=False)
ATTACH = Question("attach", ("attach", "{pid}"), is_of_agent=False)
HASTY_ATTACH = Question("attach", ("attach", "{pid}", "--timeout", "1"), is_of_agent=False)
LATER_QUERY = Question(
    "then query", ("{pid}", "query", "--format=jsonl", _COUNT), is_of_agent=False
)
LATER_EVAL = Question("then eval", ("{pid}", "eval", "6 * 7"), is_of_agent=False)

BACKTRACE = Question("backtrace", ("{pid}", "backtrace"), is_of_agent=True)
QUERY = Question("query", ("{pid}", "query", "--format=jsonl", _COUNT), is_of_agent=True)
QUERY_FRAMES = Question(
    "query frames", ("{pid}", "query", "--format=jsonl", _FRAMES), is_of_agent=True
)
EVAL = Question("eval", ("{pid}", "eval", "6 * 7"), is_of_agent=True)
UNSAFE = Question(
    "eval --unsafe", ("{pid}", "eval", "--unsafe", "6 * 7"), is_of_agent=True, may_disturb=True
)

COLUMNS = (
    (STRANGE_BACKTRACE, ATTACH, LATER_QUERY, LATER_EVAL),
    (BACKTRACE, QUERY, QUERY_FRAMES, EVAL, UNSAFE),
)
"""Of the two tables: of processes that were not prepared, and of those with the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one question to one process must bring.

    Attributes:
        shows: What the table says where it does.
        code: The command's exit code.
        says: Regular expressions, each to be found in what it prints; ``{pid}`` is the process.
    """

    question: Question
    shows: str
    code: int = 0
    says: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of process.

    Attributes:
        name: What it is called on the command line and in the names of tests.
        title: The heading of its row.
        program: Of ``tests/programs``, or a command that is on every machine.
        arguments: The program's.
        prefix: A command that starts the program in another world.
        asker: A command that asks as somebody else.
        cells: What each question must bring, in the order in which they are asked.
        states: The states of its threads, before and after; empty once it has ended. Running
            counts as sleeping.
        ends_by: The signal that is sent to it once it is ready.
        exit_code: How it ends by itself.
        needs_torch: Whether its program does.
        needs_root: Whether it takes root to start or ask it so.
        is_slow: Whether its tests take more than five seconds.
    """

    name: str
    title: str
    program: str = "stuck"
    arguments: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    asker: tuple[str, ...] = ()
    cells: tuple[Cell, ...]
    states: frozenset[str] = frozenset("S")
    ends_by: signal.Signals | None = None
    exit_code: int | None = None
    needs_torch: bool = False
    needs_root: bool = False
    is_slow: bool = False
