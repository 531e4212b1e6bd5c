"""A span for each training step, from the ring of `python.steps`.

Rules of this file: a row is read once it has settled, and again until it was taken. A step has no
spans of its phases below it: these are sums over a step's micro-batches and have no beginning of
their own, so they are attributes. It has no parent either, so that it is whole whatever becomes of
this server.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from ....client.recent_steps import PHASES
from ....errors import NoSuchProcess, RingError
from ....messages.frozen import dataclass
from ....postmortem.crashes import EXCEPTION, read_crash
from ....ring.format import DONE, FAILED, OPEN
from ....ring.peek import RingPeek, Row
from ....rundir.folders import ProcessFolder
from .resources import SCOPE, Resources, TraceIds, number_of

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from ....messages.about.job import NodeMember
    from ..roster import Roster

NAME = "training step"
_SETTLING, _SETTLED_S = 8, 30.0
"""What a device tells of a step comes with the next ones; it is waited for so long."""
_COLUMNS = {
    "loss": "loss",
    "grad_norm": "gradient_norm",
    "lr": "learning_rate",
    "samples": "samples",
    "tokens": "tokens",
    "micro_batches": "micro_batches",
    "device_s": "device.duration",
    "allocated_bytes": "memory.usage",
    **{f"{phase}_s": f"phase.{phase}.duration" for phase in PHASES},
}
"""Columns of `python.steps` that a span has, and its attributes, after ``probing.``."""
_READ = frozenset({"step", "start_ns", "duration_ns", "loss_finite", *_COLUMNS})
_RAISED = "exception"
"""Among the values of a step that one has ended: its class."""


class Reached(NamedTuple):
    """The row up to which all has been looked at.

    Attributes:
        start_ns: When its step began, which tells it from that row of a ring made anew; 0 where it
            was not there to be read.
    """

    seq: int
    start_ns: int = 0


_NONE = Reached(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Steps that travel together.

    Attributes:
        reached: How far the ring of each process is done with.
    """

    spans: tuple[ReadableSpan, ...]
    reached: Mapping[str, Reached]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """What the spans of a process have in common."""

    key: str
    run: str
    trace: int
    resource: Resource
    rank: int | None

    def span(self, row: Row) -> ReadableSpan:
        """That of a step that has ended."""
        values: Mapping[str, Any] = row.values
        attributes = {"probing.step": values["step"]}
        if self.rank is not None:
            attributes["probing.rank"] = self.rank
        for column, name in _COLUMNS.items():
            if values.get(column) is not None:
                attributes[f"probing.{name}"] = values[column]
        end_ns, events = values["start_ns"] + values["duration_ns"], []
        if (raised := values.get(_RAISED)) is not None:  # what it says may be secret
            attributes["error.type"] = raised
            events.append(Event("exception", {"exception.type": raised}, end_ns))
        return ReadableSpan(
            name=NAME,
            context=SpanContext(
                self.trace,
                number_of(8, self.key, str(row.seq), str(values["start_ns"])),
                is_remote=False,
                trace_flags=TraceFlags(TraceFlags.SAMPLED),
            ),
            resource=self.resource,
            attributes=attributes,
            events=events,
            status=_status(row),
            start_time=values["start_ns"],
            end_time=end_ns,
            instrumentation_scope=SCOPE,
        )


def _status(row: Row) -> Status:
    if row.state != DONE:
        raised = row.values.get(_RAISED, "an exception")
        return Status(StatusCode.ERROR, f"{raised} ended the step")
    if row.values.get("loss_finite") == 0:  # a number, as stored
        return Status(StatusCode.ERROR, "the loss is not finite")
    return Status(StatusCode.UNSET)


class Steps:
    """The steps of all processes that have not been sent yet; from one thread.

    Those that a process had made before this server are none of them.

    Args:
        most: How many go into a batch.
    """

    def __init__(self, roster: Roster, resources: Resources, most: int) -> None:
        self._roster = roster
        self._most = most
        self._since_ns = time.time_ns()
        self._reached: dict[str, Reached] = {}
        self._over: set[str] = set()
        self._is_last = False
        self._resources = resources
        self._traces = TraceIds()
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler

    def next(self) -> Batch:
        """The oldest of them, as many of each process."""
        members = self._roster.members(with_states=False).members
        here = {member.key for member in members}
        self._reached = {key: seq for key, seq in self._reached.items() if key in here}
        self._over &= here
        self._resources.keep(here)
        traces = self._traces.look(members)
        looked_at = [member for member in members if member.key not in self._over]
        share = max(1, self._most // max(1, len(looked_at)))
        spans: list[ReadableSpan] = []
        reached = {}
        for member in looked_at:
            folder = self._folder(member)
            if folder is None:
                continue
            rows, reached[member.key] = self._rows(member, folder, share)
            if rows:
                maker = self._maker(member, traces[member.key])
                spans += [maker.span(row) for row in rows if self._is_sampled(maker, row)]
        moved = {key: seq for key, seq in reached.items() if seq != self._reached.get(key)}
        return Batch(spans=tuple(spans), reached=moved)

    def sent(self, batch: Batch) -> None:
        """Go on behind a batch that has been taken."""
        self._reached |= batch.reached

    def settle(self) -> None:
        """Wait for nothing any more: what has ended is given as it is."""
        self._is_last = True

    def _folder(self, member: NodeMember) -> ProcessFolder | None:
        try:
            return self._roster.folder(member.key)
        except NoSuchProcess:
            return None

    def _rows(
        self, member: NodeMember, folder: ProcessFolder, most: int
    ) -> tuple[list[Row], Reached]:
        """The next rows of a process, and up to where they are all."""
        rows: list[Row] = []
        reached = self._reached.get(member.key, _NONE)
        try:
            with RingPeek(folder.ring("steps")) as ring:
                newest = ring.newest_seq()
                if member.key not in self._reached and member.started_ns < self._since_ns:
                    reached = self._reached[member.key] = _ended(ring, newest)
                if not _is_in(ring, newest, reached):  # another attach has made the ring anew
                    reached = _NONE
                oldest = newest - ring.header.capacity + 1
                for seq in range(max(reached.seq + 1, oldest), newest + 1):
                    row = ring.row(seq, _READ)
                    if len(rows) == most or not self._is_settled(row, newest - seq, member):
                        return rows, reached
                    reached = _reached_at(seq, row)
                    if row is not None and row.state != DONE and not member.is_alive:
                        row = _broken_off(row, folder)
                    rows += [row] if row is not None and row.state != OPEN else []
        except (OSError, RingError):
            pass
        if not member.is_alive and not rows:
            self._over.add(member.key)
        return rows, reached

    def _is_settled(self, row: Row | None, later: int, member: NodeMember) -> bool:
        """Whether a row stays as it is: it is old, or its process writes no more.

        Args:
            later: How many rows there are behind it.
        """
        if later >= _SETTLING or not member.is_alive:
            return True
        if row is None or row.state == OPEN:
            return False
        ended_s = row.age_s() - row.values["duration_ns"] * 1e-9
        return self._is_last or ended_s > _SETTLED_S

    def _maker(self, member: NodeMember, trace: int) -> _Maker:
        return _Maker(
            key=member.key,
            run=member.job or member.key,
            trace=trace,
            resource=self._resources.of(member),
            rank=member.rank,
        )

    def _is_sampled(self, maker: _Maker, row: Row) -> bool:
        """Whether the sampler that is asked for takes a step: the same one on all ranks."""
        of_all = number_of(16, maker.run, str(row.values["step"]))
        decision = self._sampler.should_sample(None, of_all, NAME).decision
        return decision is Decision.RECORD_AND_SAMPLE


def _broken_off(row: Row, folder: ProcessFolder) -> Row:
    """A row as the exception that ended its process in that step has left it, if one did."""
    crash = read_crash(folder)
    if crash is None or crash.kind != EXCEPTION or crash.step != row.values["step"]:
        return row
    values = row.values
    if row.state == OPEN:
        if crash.monotonic_ns is None:  # of an older agent
            return row
        start_ns = values["start_ns"]
        took_ns = max(0, crash.monotonic_ns + row.clock_offset_ns - start_ns)
        values = {"step": crash.step, "start_ns": start_ns, "duration_ns": took_ns}
    return dataclasses.replace(row, state=FAILED, values={**values, _RAISED: crash.type})


def _ended(ring: RingPeek, newest: int) -> Reached:
    """The row of the newest step that has ended."""
    row = ring.row(newest, _READ)
    if row is not None and row.state == OPEN:
        return _reached_at(newest - 1, ring.row(newest - 1, _READ))
    return _reached_at(newest, row)


def _reached_at(seq: int, row: Row | None) -> Reached:
    return Reached(seq, 0 if row is None else row.values["start_ns"])


def _is_in(ring: RingPeek, newest: int, reached: Reached) -> bool:
    """Whether a ring is the one of which so much has been looked at."""
    row = ring.row(reached.seq, _READ)
    if row is None or not reached.start_ns:
        return reached.seq <= newest
    return bool(row.values["start_ns"] == reached.start_ns)
