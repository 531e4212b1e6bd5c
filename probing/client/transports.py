"""How a process is reached: by an address, on this machine, or before it has an agent.

Rules of this file: who can be asked, and what it means when nobody answers; what is asked stands in
`Process`. What must be waited for is waited for a limited time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..errors import (
    AttachFailed,
    AttachWaiting,
    ConnectionLost,
    InternalError,
    NoSuchProcess,
    NotAnswering,
    NotProbed,
    NotProbing,
    NotPython,
    ProbingError,
    ProcessEnded,
    UsageError,
)
from ..linux import process
from ..messages import common as wire
from ..messages.limits import LARGE_ANSWER_BYTES, grace_s, ready_s
from ..reach import ladder
from ..reach.address import Address
from ..reach.endpoint import Local, resolve
from ..reach.ping import LEFT, has_left, is_there, ping
from ..reach.transport import ask
from ..rundir import contained
from ..rundir.attach_order import AttachFiles, reason_of
from ..rundir.folders import ProcessFolder, directory_of, from_env
from ..safety import off_switch
from .lost import Unsure, ends_soon, soon

if TYPE_CHECKING:
    from ..sql.answer import Answer

T = TypeVar("T")

_GONE_S = 0.5
"""How long it is waited for whether anybody listens."""


class Transport(Protocol):
    """How a process is reached."""

    @property
    def pid(self) -> int | None:
        """Its number on this machine; None for a process that is reached by an address."""

    @property
    def folder(self) -> ProcessFolder | None:
        """Its run folder, where one is known; nothing is looked for."""

    def record(self) -> ProcessFolder | None:
        """The folder with its record; None where only its agent can read it.

        Raises:
            ProbingError: It has no record, since it has no agent.
        """

    def asking(self, lost: str, limit_s: float) -> AbstractContextManager[Address]:
        """Where its agent is asked, once it is known that it answers at all.

        Args:
            lost: What cannot be had of a process that has ended.
            limit_s: The time limit of the question.

        Raises:
            ProcessEnded: It has ended, or does before it has answered.
            ProbingError: It has no agent, or one that does not answer.
        """


class ByAddress:
    """Through its agent alone, on this machine or another."""

    pid = None
    folder = None

    def __init__(self, address: Address) -> None:
        self.address = address

    def record(self) -> ProcessFolder | None:
        """See `Transport`."""
        return None

    @contextlib.contextmanager
    def asking(self, lost: str, limit_s: float) -> Iterator[Address]:
        """See `Transport`."""
        try:
            yield self.address
        except ConnectionLost:
            if self._has_gone():
                why = "it closed the connection before an answer came, and listens no more"
                raise NotProbing(str(self.address), why) from None
            raise

    def _has_gone(self) -> bool:
        """Whether nobody listens there any more; connections are closed a moment before."""
        return soon(lambda: not is_there(self.address, timeout_s=_GONE_S))


class OnThisMachine:
    """By its files first, and by its agent where it must be."""

    def __init__(self, folder: ProcessFolder) -> None:
        self.folder = folder
        self.pid = folder.pid

    def record(self) -> ProcessFolder | None:
        """See `Transport`."""
        return self.folder

    @contextlib.contextmanager
    def asking(self, lost: str, limit_s: float) -> Iterator[Address]:
        """See `Transport`."""
        folder = self.folder
        if not folder.is_alive():
            raise ProcessEnded(folder.pid, lost)
        try:
            ping(folder, timeout_s=min(ready_s(), limit_s))
            yield Address(path=folder.socket)
        except (ConnectionLost, NotProbing):
            if ends_soon(folder):
                raise ProcessEnded(folder.pid, lost) from None
            if has_left(folder):
                raise NotProbed(folder.pid, LEFT) from None
            raise


class WithoutAgent:
    """From outside, and by the agent that it has got since, by `attach` or otherwise."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._agent: OnThisMachine | None = None

    @property
    def folder(self) -> ProcessFolder | None:
        """See `Transport`."""
        return None if self._agent is None else self._agent.folder

    def record(self) -> ProcessFolder | None:
        """See `Transport`."""
        return self._found().record()

    def asking(self, lost: str, limit_s: float) -> AbstractContextManager[Address]:
        """See `Transport`."""
        return self._found().asking(lost, limit_s)

    def _found(self) -> OnThisMachine:
        """The agent that it has got.

        Raises:
            ProbingError: It has none.
        """
        if self._agent is None:
            place = resolve(self.pid, from_env())
            if not isinstance(place, Local):
                raise _no_agent(self.pid)
            self._agent = OnThisMachine(place.folder)
        return self._agent


_UNTIL_TORCH = (
    "`probing {pid} backtrace` shows where it is. A launcher or another helper gets none;"
    " `probing attach {pid}` puts one in now."
)


_UNSEEN = "it runs in a container, and no agent of it is in the run directory of this shell"


def _way_into_container(pid: int) -> str:
    """How a process of a container is asked, whose run directory is not this one."""
    its = contained.directory_through_root(pid)
    if its is not None:
        return f"Its own is seen from here: `PROBING_HOME={its} probing {pid} ...`."
    return (
        "Attach and ask from inside, where probing must be installed:"
        f" `{contained.way_to_attach(pid)}`, or the same by `docker exec` or `kubectl exec`."
        f" `probing {pid} backtrace` works from here."
    )


def _no_agent(pid: int) -> ProbingError:
    """The error of everything that needs an agent: it says which way there is to one."""
    if not process.is_python(pid):
        return NotPython(pid)
    started = process.start_time(pid)
    if started is None:
        return NoSuchProcess(str(pid))
    attach = AttachFiles(directory_of(pid).folder_for(pid, started)).read()
    if attach is not None and attach.stage == "failed":
        return AttachFailed(pid, reason_of(attach.failure))
    if attach is not None and (attach.is_at_work or attach.stage != "ordered"):
        why = ladder.who_holds_gil(pid) if attach.stage == "injected" else None
        return AttachWaiting(pid, why or attach.describe())
    if attach is not None:
        return NotProbed(pid, attach.describe())
    owner = process.owner(pid)
    if owner not in (None, os.getuid()):
        return NotProbed(pid, f"it is user {owner}'s, whose agents are not ours to ask")
    from ..rundir.removed import ANEW, removal

    gone = removal(pid)
    if gone is not None:
        return NotProbed(pid, gone, help=ANEW.format(pid=pid))
    if contained.is_in_another(pid):
        return NotProbed(pid, _UNSEEN, help=_way_into_container(pid))
    if off_switch.is_wanted(process.environment(pid)):
        why = "it has no probing agent yet: with PROBING=1 one starts once torch has been imported"
        return NotProbed(pid, why, help=_UNTIL_TORCH.format(pid=pid))
    return NotProbed(pid)


class _Notes(list[str]):
    """Sentences, each of them once: nobody may ever ask for them."""

    def append(self, note: str) -> None:
        """Add one that is not there yet."""
        if note not in self:
            super().append(note)

    def extend(self, notes: Iterable[str]) -> None:
        """Add those that are not there yet."""
        for note in notes:
            self.append(note)


class Reached:
    """A process that is reached by a transport; `Process` says what it can be asked."""

    def __init__(self, label: str, transport: Transport, timeout_s: float) -> None:
        """Ask nothing yet; `timeout_s` is the limit of each question that names none."""
        self.label = label
        self._transport = transport
        self._timeout_s = timeout_s
        self._notes: list[str] = _Notes()

    @property
    def folder(self) -> ProcessFolder | None:
        """Its run folder; None where it is reached through its agent alone, or has none."""
        return self._transport.folder

    def _get(self, cls: type[T], route: str, lost: str, *, flags: tuple[str, ...] = ()) -> T:
        """The answer of its agent; `lost` is what one that has ended cannot tell."""
        with self._transport.asking(lost, self._timeout_s) as address:
            data = ask(address, route, timeout_s=self._timeout_s, flags=flags)
        return _received(cls, data)

    def _post(
        self,
        cls: type[T],
        route: str,
        body: Any,
        lost: str,
        *,
        timeout_s: float | None = None,
        grace_s: float = 0.0,
        unsure: Unsure | None = None,
    ) -> T:
        """The same, of what is sent a request.

        Args:
            grace_s: What the answer may take beyond the limit, which the other side keeps itself.
            unsure: What may have been done, where no answer comes to what was sent.
        """
        limit_s = timeout_s or self._timeout_s
        was_sent, began_ns = False, time.perf_counter_ns()
        try:
            with self._transport.asking(lost, limit_s) as address:
                try:
                    data = ask(address, route, body=body, timeout_s=limit_s, grace_s=grace_s)
                except ProbingError as error:
                    was_sent = error.is_a(ConnectionLost, NotAnswering)
                    raise
        except ProbingError as error:
            if unsure is not None and was_sent:
                raise unsure.told(error, self.folder, began_ns) from None
            raise
        return _received(cls, data)

    def _pid_here(self, what: str, lost: str | None = None) -> int:
        """Its number, for what is done from outside.

        Args:
            lost: What can be done no more once it has ended, where that has to be looked at.

        Raises:
            ProcessEnded: It has.
            UsageError: It is reached by an address.
        """
        pid, folder = self._transport.pid, self._transport.folder
        if pid is None:
            raise UsageError(
                f"{what} works on processes of this machine only, and {self.label} is an address.",
                help="Run the command on that machine, with the process's pid.",
            )
        if lost is not None and folder is not None and not folder.is_alive():
            raise ProcessEnded(pid, lost)
        return pid


def live_rows(
    address: Address,
    table: str,
    *,
    timeout_s: float,
    wait_s: float | None = None,
    flags: Sequence[str] = (),
) -> wire.LiveRows:
    """The rows of a live table; see `Process.live`."""
    data = ask(
        address,
        "live",
        timeout_s=timeout_s + (wait_s or 0.0),
        flags=tuple(flags),
        times={} if wait_s is None else {"wait_s": wait_s},
        table=table,
    )
    return _received(wire.LiveRows, data)


def environment_of(folder: ProcessFolder, ask_agent: Callable[[], wire.LiveRows]) -> wire.LiveRows:
    """The rows of python.environment: from the agent, else what is kept in the run folder.

    Raises:
        ProbingError: The agent does not answer, or has ended, and nothing is kept.
    """
    from ..postmortem.environment import kept_environment

    try:
        return ask_agent()
    except (ConnectionLost, NotAnswering, NotProbed, ProcessEnded):
        kept = kept_environment(folder)
        if kept is None:
            raise
        return kept


def _received(cls: type[T], data: bytes) -> T:
    """An answer as the object it must be.

    Raises:
        InternalError: It is none.
    """
    try:
        return wire.decode(cls, data)
    except ProbingError as error:
        why = error.message.rstrip(".")
        raise InternalError(f"the agent's answer cannot be read: {why}") from None


def query_agent(address: Address, request: wire.QueryRequest, limit_s: float) -> Answer:
    """What an agent answers to a statement."""
    from ..sql.answer import Answer

    data = ask(
        address,
        "query",
        body=request,
        timeout_s=limit_s,
        grace_s=grace_s(),
        most_bytes=LARGE_ANSWER_BYTES,
    )
    return Answer.from_ipc(data)
