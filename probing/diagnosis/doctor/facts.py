"""What is known of one process, each thing asked for once.

Rules of this file: recorded tables are read from the record, whatever state the process is in. Live
ones are asked for until one is not answered: from then on nothing live is asked, so that a process
that hangs costs one limit and not ten.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...errors import ProbingError, TimedOut, Unreachable
from ...linux.process import environment as process_environment
from ...ring.peek import as_recorded
from ...rundir.numbers import read_name
from ...safety import off_switch
from ...sql.quoting import in_one
from ...tables import STEP_PHASES
from ..hang.seen.doings import IMPORTS
from .first_look import FirstLook, crowd_here
from .hot_lines import HotLine, lines_in
from .not_looked_at import ENDED, LATE, NotLookedAt, NotYet, Unread, why_not
from .series import Floats
from .turns.live_time import LiveTime
from .turns.peeked_steps import newest_steps

if TYPE_CHECKING:
    from ...client.base import Process
    from ...cluster.job.members import Member
    from ...rundir.folders import ProcessFolder
    from ..hang.evidence import Verdict

T = TypeVar("T")
Row = Mapping[str, Any]

MOST_STEPS = 4000
"""So many of the newest steps are looked at."""
WINDOW = 100
"""How things are now is told from so many of them,"""
LEAST_STEPS = 8
"""or from this many at least."""
_WARM_UP = 3
"""The first steps of a training load libraries, allocate and compile."""
_SAMPLED_S = 2.0
_HZ = 50

_COLUMNS = (
    "step, start_ns, duration, loss, first_loss, loss_finite, grad_norm, clipped_norm, lr, samples,"
    " tokens, micro_batches, data_wait_s, to_device_s, forward_s, loss_s, backward_s,"
    " gradient_sync_s, gradients_s, optimizer_s, other_s, amp_scale, skipped, cpu_s, process_cpu_s,"
    " gc_s, major_faults, voluntary_switches, involuntary_switches, optimizer, optimizer_steps,"
    " device_s, host_bound, failed, thread_id"
)
_STEPS = (
    f"SELECT {_COLUMNS} FROM python.steps WHERE start_ns < {{until}}"  # noqa: S608 - our columns
    f" ORDER BY seq DESC LIMIT {MOST_STEPS}"
)
_EVER = (1 << 63) - 1
_STARTING_NS = 3_000_000_000
"""A command loads its libraries before it asks, which on few processors slows the training."""


class Steps:
    """The rows of python.steps that have ended, oldest first, by column."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [row for row in rows if row["duration"] is not None]
        self.open = next((row for row in rows if row["duration"] is None), None)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str, *, missing: float = math.nan) -> Floats:
        """A column as numbers.

        Args:
            missing: What stands for NULL.
        """
        values = [missing if row[name] is None else float(row[name]) for row in self.rows]
        return np.array(values, dtype=np.float64)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the steps."""
        return [row["step"] for row in self.rows]

    @property
    def begins_at_start(self) -> bool:
        """Whether the first steps of the training are on record."""
        return bool(self.rows) and self.rows[0]["step"] <= 1

    def settled(self) -> Steps:
        """Without the first steps of the training, where they are on record."""
        if not self.begins_at_start:
            return self
        return Steps(self.rows[_WARM_UP:])

    def last(self, count: int = WINDOW) -> Steps:
        """The newest ones."""
        return Steps(self.rows[-count:])

    def seconds(self, phase: str) -> float:
        """What all steps together have spent in a phase."""
        return float(self.column(f"{phase}_s", missing=0.0).sum())

    @property
    def total_s(self) -> float:
        """How long all of them took together."""
        return float(self.column("duration").sum())

    @property
    def median_s(self) -> float:
        """How long one takes."""
        return float(np.median(self.column("duration"))) if self.rows else math.nan

    def shares(self) -> dict[str, float]:
        """What part of the time each phase took, waiting for other ranks among them."""
        total = self.total_s
        phases = (*STEP_PHASES, "gradient_sync")
        return {phase: self.seconds(phase) / total if total else 0.0 for phase in phases}


class Facts:
    """What one process tells.

    Attributes:
        verdict: What `hang` says of it or its job; None where that was not asked.
        is_alive: Whether it runs.
        proc: Where the kernel tells of the processes of this machine.
        first: How it was before anything was asked.
        live_time: For how long it is asked for what is not on record.
        is_closed: Whether it stays at what of the record has been read by now.
        has_refused: Whether the look under way lacks more of it.
    """

    def __init__(
        self,
        process: Process,
        member: Member,
        verdict: Verdict | None,
        *,
        live_s: float,
        proc: str = "/proc",
    ) -> None:
        """Ask nothing yet; live questions are begun for so long."""
        self.proc = proc
        self._process, self.member, self.verdict = process, member, verdict
        self.live_time = LiveTime(live_s)
        self._until = _EVER
        self._known: dict[str, Any] = {}
        self._together: tuple[str, ...] = ()
        self._statements: dict[str, None] = {}
        self._silent: str | None = None
        self.is_closed = self.has_refused = False
        folder = self.folder
        self.is_alive = folder.is_alive() if folder is not None else member.is_alive is not False
        self.first = FirstLook(member.pid if folder is not None and self.is_alive else None)

    @property
    def folder(self) -> ProcessFolder | None:
        """Its run folder; None where it is on another machine, or has no agent."""
        return self._process.folder

    def pid_here(self) -> int:
        """Its number, which `/proc` of this machine has.

        Raises:
            NotLookedAt: It is elsewhere, or has ended.
        """
        member = self.member
        if not self.is_alive:
            raise NotLookedAt(ENDED)
        if member.pid is None or not (self.folder is not None or member.endpoint.isdecimal()):
            where = f"on {member.host}" if member.host else "elsewhere"
            raise NotLookedAt(f"it runs {where}, and only a command there can look at that")
        return member.pid

    @property
    def process(self) -> Process:
        """The process itself, for what is asked by one rule alone."""
        return self._process

    @property
    def steps(self) -> Steps:
        """Its steps.

        Raises:
            NotLookedAt: There is no record of them.
        """
        if self.is_closed and "steps" not in self._known and self.folder is not None:
            names = _COLUMNS.split(", ")
            if rows := newest_steps(self.folder, names, WINDOW, self._until):
                self._known["steps"] = Steps(rows)
        sql = _STEPS.format(until=self._until)
        return self._once("steps", lambda: Steps(self.rows(sql)[::-1]))

    @property
    def training_thread(self) -> int | None:
        """The number of the thread that makes its steps; None for the main thread, or not known.

        Raises:
            NotLookedAt: There is no record of them.
        """
        rows = self.steps.rows
        number: int | None = rows[-1]["thread_id"] if rows else None
        own = self.folder and read_name(self.folder.path.name)  # a container has its own numbers
        return None if number in {self.member.pid, own and own.number} else number

    @property
    def known_steps(self) -> Steps | None:
        """Its steps, where they have been read; nothing is asked for it."""
        found = self._known.get("steps")
        return found if isinstance(found, Steps) else None

    @property
    def undisturbed(self) -> Steps:
        """The settled steps that began before the command that looks was started.

        Raises:
            NotLookedAt: There is no record of them.
        """
        end = self._until - (_STARTING_NS if self._until != _EVER else 0)
        return Steps([row for row in self.steps.settled().rows if row["start_ns"] < end])

    def leave_out_steps_since(self, moment_ns: int) -> None:
        """Leave out steps since a moment of the monotonic clock: to look may have slowed them."""
        folder = self.folder
        if folder is not None and folder.is_of_this_boot():  # another machine has another clock
            self._until = as_recorded(folder.ring("steps"), moment_ns) or self._until

    @functools.cached_property
    def crowd(self) -> str:
        """That its machine has more to do than it has processors for; empty where it has not."""
        return "" if self.folder is None else crowd_here()

    def now(self, *, least: int = LEAST_STEPS) -> Steps:
        """Its newest steps, without those of the training's start.

        Raises:
            NotLookedAt: There are too few.
        """
        found = self.steps.settled().last()
        if len(found) < least:
            number = len(found)
            raise NotLookedAt(
                f"only {number} step{'' if number == 1 else 's'} after the first {_WARM_UP} on"
                f" record, and {least} are needed"
            )
        return found

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a query of recorded tables.

        Raises:
            NotLookedAt: There is no record, or none of that kind.
        """
        if self.is_closed and sql not in self._known:
            self.has_refused = True
            raise Unread(LATE)
        self._statements[sql] = None
        if sql in self._together and sql not in self._known:
            self._ask_together()
        return self._once(sql, lambda: self._process.query(sql).to_pylist())

    @property
    def statements(self) -> tuple[str, ...]:
        """What its record was asked, each statement once."""
        return tuple(self._statements)

    def prepare(self, statements: Iterable[str]) -> None:
        """Have statements asked in one, once any of them is: most of what one costs is one."""
        self._together = tuple(dict.fromkeys(statements))

    def _ask_together(self) -> None:
        """Ask what was prepared; where that fails, each is asked by itself."""
        asked, self._together = self._together, ()
        parts = {f"q{number}": sql for number, sql in enumerate(asked)}
        try:
            found = self._process.query(in_one(parts)).to_pylist()[0]
        except ProbingError:
            return
        for number, sql in enumerate(asked):
            self._known.setdefault(sql, found[f"q{number}"] or [])

    def live(self, table: str) -> list[dict[str, Any]]:
        """The rows of a live table.

        Raises:
            NotLookedAt: It cannot be asked, or did not answer before.
        """

        def ask() -> list[dict[str, Any]]:
            self.need_answers()
            return self._process.live(table, wait_s=None).dicts()

        return self._once(f"live {table}", ask)

    def need_answers(self) -> None:
        """Make sure that the process may be asked for something live.

        Raises:
            NotLookedAt: It has ended, or did not answer before.
        """
        if not self.is_alive:
            raise NotLookedAt(f"{ENDED}, and only its record can be asked")
        if self._silent is not None:
            raise NotLookedAt(self._silent)
        if self.stands_still:
            raise NotLookedAt("the training does not go on")
        self.live_time.need()

    @property
    def seconds_left(self) -> float:
        """For how long live questions are still begun."""
        return self.live_time.left_s

    @property
    def stands_still(self) -> bool:
        """Whether it hangs, or is about to."""
        verdict = self.verdict
        if verdict is None:
            return False
        return verdict.is_hang or verdict.outcome == "hang" or verdict.may_hang

    @functools.cached_property
    def _agent_comes(self) -> str:
        """That a process is importing, and has its agent after that; empty where it is not so."""
        pid, verdict = self.member.pid, self.verdict
        if self.folder is not None or verdict is None or pid is None:
            return ""
        words = next((c.what for c in verdict.causes if c.what.startswith(IMPORTS)), "")
        if not words or not off_switch.is_wanted(process_environment(pid)):
            return ""
        return f"process {pid} {words}, and its agent comes with torch: look again then"

    @property
    def environment(self) -> dict[str, str]:
        """The values of python.environment by their names."""
        return {r["name"]: r["value"] for r in self.live("environment") if r["value"] is not None}

    def ask(self, name: str, question: Callable[[], T]) -> T:
        """The answer to a live question, which is asked once.

        Raises:
            NotLookedAt: It cannot be asked, or did not answer before.
        """

        def asked() -> T:
            self.need_answers()
            return question()

        return self._once(name, asked)

    def hot_lines(self) -> list[HotLine]:
        """Lines of the program that the training thread was in, the commonest first.

        It is sampled from outside for two seconds and not paused.

        Raises:
            NotLookedAt: It is on another machine, or cannot be sampled.
        """

        def sample() -> list[HotLine]:
            self.need_answers()
            if self.folder is None:
                self.pid_here()
                raise NotLookedAt("no agent is in it")
            samples = self._process.sample(_SAMPLED_S, hz=_HZ, idle=True)
            return lines_in(samples.stacks, self.training_thread)

        return self._once("hot lines", sample)

    def _once(self, key: str, question: Callable[[], T]) -> T:
        if key not in self._known:
            try:
                self._known[key] = question()
            except (NotYet, Unread):
                self.live_time.note(key)
                raise
            except NotLookedAt as error:
                self._known[key] = error
            except ProbingError as error:
                self._known[key] = NotLookedAt(self._agent_comes or why_not(error))
                if error.exit_code in {Unreachable.exit_code, TimedOut.exit_code}:
                    self._silent = str(self._known[key])
        found = self._known[key]
        if isinstance(found, NotLookedAt):
            raise found
        return found  # type: ignore[no-any-return]


def percent(share: float) -> str:
    """A share as people write it: `61 %`; below one per cent with a digit more."""
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"
