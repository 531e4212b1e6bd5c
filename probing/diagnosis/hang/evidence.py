"""What is known of the ranks of a job, and what is made of it.

Rules of this file: records only. What was not seen is None or empty, never a guess.
"""

from __future__ import annotations

from typing import Literal

from ...cluster.job.forms import is_address
from ...messages import rank_paths
from ...messages.frozen import InNotebooks, dataclass
from ...postmortem.endings import Way
from ...stacks.waits import BY_DEBUGGER

State = Literal["answering", "silent", "stopped", "dead", "unreachable", "missing"]
"""``silent``: alive, but its agent does not answer; it was looked at from outside.
``unreachable``: it did not answer in time, and cannot be looked at from outside.
``missing``: the job has such a rank, and nothing of it was found."""

Kind = Literal[
    "healthy",
    "slow",
    "mismatch",
    "missing",
    "dead",
    "stopped",
    "unseen",
    "deadlock",
    "not_joined",
    "store",
    "unmatched",
    "same_collective",
    "held",
    "process",
    "ended",
    "unknown",
]
Outcome = Literal["fine", "slow", "hang", "crashed"]
"""What a verdict comes to: ``slow``: it stands still, and those that are waited for get on."""
DoingKind = Literal[
    "collective",
    "joining",
    "store",
    "backward",
    "loader",
    "checkpoint",
    "lock",
    "gil",
    "device",
    "io",
    "sleep",
    "exiting",
    "held",
    "looked_at",
    "idle",
    "python",
    "waiting",
    "stopped",
    "unknown",
]

_HANG_S = 10.0
POINT_TO_POINT = frozenset({"send", "recv"})
"""Operations of two ranks, which do not take part in the order of a group's collectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective on one rank, a row of `python.collectives`.

    Attributes:
        peer: The other rank of a send or recv.
        age_s: Seconds since it was called, by the clock of its machine.
        start_ns: When it was called, by the same clock.
        is_open: Whether it has not ended.
    """

    group: str
    seq: int
    op: str
    shapes: str | None = None
    dtypes: str | None = None
    root: int | None = None
    reduce_op: str | None = None
    peer: int | None = None
    is_async: bool = False
    caller: str | None = None
    thread_id: int | None = None
    age_s: float | None = None
    start_ns: int | None = None
    is_open: bool = False
    error: str | None = None

    @property
    def is_collective(self) -> bool:
        """Whether all ranks of the group take part in it."""
        return self.op not in POINT_TO_POINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group.

    Attributes:
        name: As torch calls it.
        ranks: The global ranks of its members; empty where unknown.
    """

    name: str
    description: str | None = None
    backend: str | None = None
    size: int | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a thread of a rank does.

    Attributes:
        words: What it does, in words that fit behind the rank's name.
        where: The line of the job's own code that does it, ``train.py:87 in fetch``.
        stack: The innermost frames, ``func (file:line)``.
        group_ranks: The ranks of the group that it makes, where that was looked at.
        holder: What the thread does that has the lock it waits for, where that is known.
        is_deadlock: Whether it waits for ever, as its own threads wait for each other.
    """

    kind: DoingKind
    words: str
    where: str | None = None
    stack: tuple[str, ...] = ()
    group_ranks: str | None = None
    holder: DoingKind | None = None
    is_deadlock: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a rank got done between two looks at it, as the kernel counts it.

    Attributes:
        cpu: How many processors its training thread used.
        children_cpu: How many the processes that it has started used.
        children_rate: Bytes per second that those read and wrote.
        read_rate: Bytes per second that it read.
        written_rate: Bytes per second that it wrote.
        has_moved_on: Whether it was at another line of its own code.
        is_ready: Whether that thread ran, or was ready to, at both looks.
        starved: The share of the time in which it was ready to run and had no processor; 0 of who
            keeps going to sleep, as a poll does.
        others_cpu: How many processors the other threads of it used, where it may wait for any of
            them, as nobody could tell which.
    """

    cpu: float = 0.0
    children_cpu: float = 0.0
    children_rate: float = 0.0
    read_rate: float = 0.0
    written_rate: float = 0.0
    has_moved_on: bool = False
    is_ready: bool = False
    starved: float = 0.0
    others_cpu: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """Everything that is known of one rank.

    Attributes:
        calls: Its last collectives, per group in the order of `seq`.
        groups: The process groups it belongs to.
        step: The step in progress.
        moved: Whether its record grew between two looks; None where it was looked at once.
        still_s: Seconds since the newest thing on its record.
        age_s: Seconds since its agent was started.
        median_step_s: The median duration of its last steps.
        ending: How it ended, a sentence; of a living one, the exception that it is leaving with.
        way: How it ended, where no crash tells.
        ended_ns: When, since the epoch.
        died_of_peers: Whether the error that it died of says that another rank was gone.
        is_terminated: Whether it has ended by SIGTERM.
        asked_by: Who sent that, empty where it is not known; None where none is on record.
        not_finite: The last step whose loss was not finite, where none was finite since.
        module: The innermost module call that has not returned.
        work: What it got done between two looks; None where it was looked at once.
        others: What the processes do that it waits for, where that is known, a clause each.
        lock_pid: The process of its machine that has the lock of a file that it waits for.
        deadlocks: The circles of threads of it that wait for each other, a clause each.
        eval_id: The eval that its training thread stands still for.
        has_agent: Whether there is a record of it at all.
        is_paused: Whether its recording is off, so that the record says nothing of what it does.
        device: What its device did when it was looked at last; None where it uses none.
        device_errors: What the driver has told of errors of that device.
        is_by_flight: Whether its collectives are those of torch's flight recorder.
        has_stack: Whether there is a stack to be shown, of one that has ended the last known.
        notes: What could not be had of it, and why.
    """

    rank: int | None
    host: str = ""
    pid: int | None = None
    endpoint: str = ""
    world_size: int | None = None
    state: State = "answering"
    calls: tuple[Call, ...] = ()
    groups: tuple[Group, ...] = ()
    step: int | None = None
    moved: bool | None = None
    still_s: float | None = None
    age_s: float | None = None
    median_step_s: float | None = None
    doing: Doing | None = None
    ending: str | None = None
    way: Way | None = None
    ended_ns: int | None = None
    died_of_peers: bool = False
    is_terminated: bool = False
    asked_by: str | None = None
    not_finite: int | None = None
    module: str | None = None
    work: Work | None = None
    others: tuple[str, ...] = ()
    lock_pid: int | None = None
    deadlocks: tuple[str, ...] = ()
    eval_id: int | None = None
    has_agent: bool = True
    is_paused: bool = False
    is_by_flight: bool = False
    has_stack: bool = True
    device: str | None = None
    device_errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Its endpoint, where that is an address, or it has no agent and so is not found by rank.

        Empty for any other process of this machine.
        """
        is_far = is_address(self.endpoint) or rank_paths.split(self.endpoint)[1]
        return self.endpoint if is_far or not self.has_agent else ""

    @property
    def is_debugged(self) -> bool:
        """Whether it is stopped by a debugger, or by whoever reads its stack: that may be over."""
        return self.state == "stopped" and BY_DEBUGGER in (self.doing.words if self.doing else "")

    @property
    def gave_up(self) -> bool:
        """Whether it has ended, or is about to, because another rank was gone or did not come."""
        is_leaving = self.doing is not None and self.doing.kind == "exiting"
        return self.died_of_peers and (self.state == "dead" or is_leaving)

    @property
    def is_wordless(self) -> bool:
        """Whether it has ended as after SIGKILL."""
        return self.way in {"wordless", "oom"}

    @property
    def ended_well(self) -> bool:
        """Whether it has ended in an orderly way, as far as anything tells."""
        return self.way in {"orderly", "untold"}

    @property
    def is_alive(self) -> bool:
        """Whether it is known to run, or to be stopped."""
        return self.state in {"answering", "silent", "stopped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A rank that the others wait for, or that does something else than they.

    Attributes:
        what: What is wrong with it, in words that fit behind its name.
        endpoint: Its address, where it was asked over the network: only there can it be.
        evidence: What that follows from, one line each.
    """

    rank: int | None
    pid: int | None
    host: str
    what: str
    endpoint: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceQuery:
    """A query that shows what the verdict follows from."""

    title: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(InNotebooks):
    """Why a job does not go on, or that it does.

    Attributes:
        is_hang: Whether it is certain, or the job has stood still for `threshold_s`.
        headline: The verdict in one sentence.
        outcome: What it comes to, in one word.
        has_ended: Whether there is nobody left who could hang.
        ended_well: Whether all have then ended in an orderly way.
        is_terminated: Whether they have ended by SIGTERM, or whom it names first has.
        causes: Whom it is about; none where nobody can be named.
        victims: The ranks that only wait for those.
        still_s: For how long nothing has moved; None while it does, or where unknown.
        victims_do: What most of them are in, ``all_reduce number 41 of group 0 at train.py:88``.
        confidence: ``high``, ``medium`` or ``low``, with the reason behind a colon.
        coverage: What the verdict is based on, and what was missing.
        next_steps: What to do, in that order.
    """

    kind: Kind
    is_hang: bool
    headline: str
    outcome: Outcome = "fine"
    has_ended: bool = False
    ended_well: bool = False
    is_terminated: bool = False
    causes: tuple[Cause, ...] = ()
    victims: tuple[int, ...] = ()
    victims_do: str | None = None
    group: str | None = None
    still_s: float | None = None
    threshold_s: float | None = None
    confidence: str = ""
    coverage: str = ""
    job: str | None = None
    notes: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    queries: tuple[EvidenceQuery, ...] = ()

    @property
    def may_hang(self) -> bool:
        """Whether nothing has moved for half of the time after which that is called a hang."""
        if self.has_ended or self.outcome != "fine" or self.still_s is None:
            return False
        return self.still_s >= (self.threshold_s or _HANG_S) / 2
