"""Who a process is, in OpenTelemetry's words: its resource, and the trace of its run.

Rules of this file: names by the semantic conventions, ours under ``probing.``. The command's
arguments stay here: they may hold secrets. What the user says by OTEL_SERVICE_NAME and
OTEL_RESOURCE_ATTRIBUTES goes before what is found, but for what tells processes apart.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ...._version import VERSION
from ....errors import NoSuchProcess
from ....messages.about.job import NodeMember
from ....messages.card import Card
from ....rundir.project import project_of

if TYPE_CHECKING:
    from ..roster import Roster

SCOPE = InstrumentationScope("probing", VERSION)
"""Who has measured."""
_UNNAMED = "unknown_service"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TOGETHER_NS = 600 * 10**9
"""How far apart ranks of one start begin at most."""

Attributes = dict[str, "str | int"]
_Place = tuple[int | None, int | None, int | None, str | None, int]


def _place_of(member: NodeMember) -> _Place:
    """Where it stands in its job, which a process may learn only once it runs."""
    rank, local_rank, size = member.rank, member.local_rank, member.world_size
    return rank, local_rank, size, member.job, member.attempt


class Resources:
    """The resources of processes, each made once for its place in its job; for one thread."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._base = Resource.create()
        self._known: dict[str, tuple[_Place, Resource]] = {}

    def of(self, member: NodeMember) -> Resource:
        """That of a process."""
        place = _place_of(member)
        known = self._known.get(member.key)
        if known is None or known[0] != place:
            known = place, self._base.merge(Resource(self._own(member)))
            self._known[member.key] = known
        return known[1]

    def keep(self, keys: Iterable[str]) -> None:
        """Forget all others."""
        kept = set(keys)
        self._known = {key: one for key, one in self._known.items() if key in kept}

    def _own(self, member: NodeMember) -> Attributes:
        """What is to be said of a process beside what is said of all."""
        try:
            card = self._roster.folder(member.key).read_card()
        except NoSuchProcess:
            card = None
        said = self._base.attributes
        usual = {
            name: value
            for name, value in _machine(member).items()
            if name not in said or name == "telemetry.distro.name"
        }
        if card is not None and str(said.get("service.name", _UNNAMED)).startswith(_UNNAMED):
            usual["service.name"] = project_of(card)
        return {**usual, **_process(member, card)}


def _machine(member: NodeMember) -> Attributes:
    machine = platform.machine()
    return {
        "host.name": member.host,
        "host.arch": _ARCHITECTURES.get(machine, machine),
        "os.type": "linux",
        "telemetry.distro.name": "probing",
        "telemetry.distro.version": VERSION,
    }


def _process(member: NodeMember, card: Card | None) -> Attributes:
    """What tells a process from others."""
    found: Attributes = {
        "service.instance.id": f"{member.host}:{member.key}",
        "process.pid": member.pid,
    }
    if card is not None:
        found |= {
            "process.executable.name": Path(card.executable).name,
            "process.executable.path": card.executable,
            "process.runtime.name": "cpython",
            "process.runtime.version": card.python,
        }
    numbers = {
        "rank": member.rank,
        "local_rank": member.local_rank,
        "world_size": member.world_size,
    }
    found |= {f"probing.{name}": n for name, n in numbers.items() if n is not None}
    if member.job is not None:
        found |= {"probing.job": member.job, "probing.attempt": member.attempt}
    return found


class TraceIds:
    """The trace of each process: one for all ranks here of one start of a job.

    A launcher may give many starts the same name, so the moment tells them apart: a rank belongs to
    the newest start of its job that has no such rank yet and began within ten minutes of it. Who
    learns its rank later changes to that trace, which the others keep.
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._places: dict[str, _Place] = {}

    def look(self, members: Iterable[NodeMember]) -> dict[str, int]:
        """The traces of all processes that are there."""
        members = list(members)
        places = {member.key: _place_of(member) for member in members}
        for key in places.keys() & self._places.keys():
            if places[key] != self._places[key]:
                del self._known[key]
        self._places = places
        found: dict[str, int] = {}
        for start in _starts(members):
            known = (self._known[one.key] for one in start if one.key in self._known)
            shared = next(known, None) or trace_id(start[0])
            found |= {one.key: self._known.get(one.key, shared) for one in start}
        self._known = found
        return found


def _starts(members: Iterable[NodeMember]) -> list[list[NodeMember]]:
    """Who began together, the oldest first; whoever has no rank stands alone."""
    starts: list[list[NodeMember]] = []
    newest: dict[tuple[str, int], list[NodeMember]] = {}
    for member in sorted(members, key=lambda one: one.started_ns):
        start: list[NodeMember] = []
        if member.job is not None and member.rank is not None:
            start = newest.get((member.job, member.attempt), start)
            is_near = not start or member.started_ns - start[0].started_ns <= _TOGETHER_NS
            if not is_near or member.rank in {one.rank for one in start}:
                start = []
            newest[member.job, member.attempt] = start
        if not start:
            starts.append(start)
        start.append(member)
    return starts


def trace_id(first: NodeMember) -> int:
    """The trace of the run that begins with a process; the same from every node server."""
    return number_of(16, first.host, first.key, str(first.started_ns))


def number_of(size: int, *words: str) -> int:
    """A number of so many bytes that stands for some words; never 0."""
    text = "\0".join(words).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:size], "big") or 1
