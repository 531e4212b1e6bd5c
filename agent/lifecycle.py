"""Starts and stops the agent in this process.

Rules of this file: `start` and `stop` are each other's mirror, and stopping twice is harmless. A
forked child drops the parent's agent without writing a byte, and may start its own.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import ProbingError
from ..linux import process
from ..messages.card import FAILED_START, TAKEN_OUT
from ..rundir import folders as rundir
from ..rundir.folders import ProcessFolder, write_private
from ..rundir.places import lasting_home, moved, own_place
from ..safety import forks
from ..safety.file_limit import require_room
from ..safety.guard import try_each
from ..script import marks
from ..server.liveness import has_gone
from ..server.sockets import bind_tcp, bind_unix
from ..settings import SETTINGS, Settings
from ..settings.values import unknown_in
from .crash.crashes import CrashRecorder
from .genuine import genuine, has_own_threads
from .leaving import Arrival, Leaving, remains, unload, wait_for_threads
from .listener import Listener, Serving, keeps_actions
from .recording.safe_points import AGENT_THREAD_PREFIX
from .recording.training_thread import correct_main_thread
from .state import Agent, int_from_env

if TYPE_CHECKING:
    from ..script.own_tables import ScriptTable
    from .withheld import Withheld

_ASKED_FOR = Arrival()


class Running:
    """A running agent: what it holds, and the thread that answers."""

    def __init__(self, agent: Agent, arrival: Arrival) -> None:
        self.agent = agent
        self.arrival = arrival
        self._listener: Listener | None = None
        self._withheld: Withheld | None = None
        self._crashes = CrashRecorder(agent)

    def begin(self) -> None:
        """Record, bind the sockets, and wait for questions.

        Raises:
            OSError: The unix socket cannot be bound.
        """
        agent = self.agent
        failed = try_each((agent.hold,))
        agent.problems.extend(f"other machines cannot see that it lives: {what}" for what in failed)
        if agent.settings.token or agent.settings.read_token:
            failed = try_each((self._withhold,))
            agent.problems.extend(f"its tokens are still in the environment: {w}" for w in failed)
        if self.arrival.is_early:
            agent.await_use()
        else:
            agent.record(late=self.arrival.late)
        listening = [bind_unix(agent.folder.socket)]
        if agent.settings.listen:
            try:
                listening.append(_listen_on_tcp(agent))
            except (ProbingError, OSError) as error:
                reason = f"no TCP listener: {error}"
                agent.problems.append(reason)
                _warn([] if self.arrival.is_guest else [reason])
        agent.write_card()
        self._listener = Listener(agent, listening, _make_server, _renew_soon)
        agent.wake = self._listener.wake
        self._listener.start()
        self._crashes.start()
        marks.attend_tables(self._record_own)

    def stop(self) -> None:
        """Leave the process as it was; never raises."""
        self.agent.problems.append(TAKEN_OUT)
        self._do(self.agent.write_card)
        self._do(self._crashes.stop)
        self.end()
        if self._withheld is not None:
            self._do(self._withheld.give_back)

    def remains(self) -> list[str]:
        """What `stop` will have to leave in the process, a sentence each."""
        return [*self.agent.training.remains(), *self._crashes.remains()]

    def end(self, *, is_exit: bool = False) -> None:
        """The process ends: let go of all but what records a crash on the way; never raises."""
        if is_exit:
            self._do(self._crashes.tell_exit)
        marks.leave_tables()
        if self._listener is not None:
            self._do(self._listener.stop)
        self._do(self.agent.close)

    def keep_interrupt(self) -> None:
        """The last that is done as the process ends."""
        self._crashes.keep_interrupt()

    def abandon(self) -> None:
        """Runs in a forked child: let go of everything that is the parent's; never raises."""
        marks.leave_tables()
        try_each((self._crashes.stop, self.agent.abandon))
        if self._listener is not None:
            try_each((self._listener.abandon,))

    def _record_own(self, table: ScriptTable) -> None:
        """Record a table that the script has declared; raises nothing."""
        what = f"python.{table.declared.name} is not recorded"
        self._do(lambda: self.agent.extensions().tables.open(table), what)

    def _withhold(self) -> None:
        """Keep the tokens from what the training starts."""
        from .withheld import Withheld  # not needed by most processes

        self._withheld = Withheld()
        self._withheld.take(self.agent.settings, self.agent.folder)

    def _do(
        self, action: Callable[[], object], what: str = "the agent did not leave cleanly"
    ) -> None:
        """Do one thing; if it fails, that is told on the card and stops nothing else."""
        failed = try_each((action,))
        if failed:
            self.agent.problems.append(f"{what}: {failed[0]}")
            try_each((self.agent.write_card,))


def _listen_on_tcp(agent: Agent) -> socket.socket:
    """A TCP socket as the settings ask for, with the tokens in their files."""
    from ..server.access.tokens import tokens_for  # not needed by most processes

    agent.token, agent.read_token = tokens_for(agent.settings)
    bound = bind_tcp(agent.settings, int_from_env("LOCAL_RANK") or 0)
    agent.listen, agent.certificate = bound.address, bound.certificate
    write_private(agent.folder.token, agent.token.encode())
    write_private(agent.folder.read_token, agent.read_token.encode())
    return bound.server


def _make_server(agent: Agent, attend: Callable[[], float]) -> Serving:
    """The HTTP server; it and aiohttp are loaded only when somebody asks."""
    with forks.held_back(timeout_s=1.0):  # the agent may be about to leave
        from ..messages.routes import ROUTES
        from ..server.server import Server
        from ..server.sql_worker import worker_process
        from .handlers import Handlers

        agent.asked()
        worker_process.borrowed_places = agent.places
        handlers = Handlers(agent)
        bound = [(route, getattr(handlers, route.name)) for route in ROUTES]
        return Server(agent, bound, handlers.close, chore=attend)


_running: Running | None = None


def start(settings: Settings, arrival: Arrival = _ASKED_FOR) -> Agent:
    """Start the agent of this process, or return the one that runs.

    Raises:
        AttachRefused: This Python has no interpreter lock, or another interpreter has an agent.
        ProbingError: The run directory is not safe to use.
        OSError: The run folder or the socket cannot be made, or the program needs the descriptors.
    """
    global _running  # noqa: PLW0603 - one agent per process
    with forks.held_back():
        if _running is None:
            _require_interpreter(settings)
            require_room()
            correct_main_thread()
            arrival = arrival._replace(loaded=arrival.loaded or frozenset(sys.modules))
            folder = _own_folder(settings)
            agent = Agent(_with_tokens(settings, folder), folder)
            passed_over = moved(settings, folder.path)
            agent.unknown = unknown_in(os.environ, SETTINGS)
            agent.problems.extend((*passed_over, *agent.unknown))
            if not arrival.is_guest:
                _warn(passed_over)
                # Of the ranks of a machine, which have the same environment, the first says so.
                _warn([] if int_from_env("LOCAL_RANK") else agent.unknown)
            agent.places, agent.depart = arrival.places, _depart
            forks.watch(_forked)
            running = _running = Running(agent, arrival)
            try:
                running.begin()
            except BaseException:
                stop()
                raise
            atexit.register(_ended)
        return _running.agent


def _require_interpreter(settings: Settings) -> None:
    """Make sure that this interpreter is one for an agent.

    Raises:
        AttachRefused: It has no lock, or another one of this process has an agent.
    """
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    if not has_lock or is_answered_for(settings):
        from ..safety.interpreter import lacks_lock, second_agent  # needed by hardly any process

        raise second_agent() if has_lock else lacks_lock()


def _with_tokens(settings: Settings, folder: ProcessFolder) -> Settings:
    """The settings with the tokens that an agent above took out of the environment."""
    if not (settings.listen or settings.node):
        return settings
    from .withheld import completed  # not needed by most processes

    return completed(settings, folder)


def is_answered_for(settings: Settings) -> bool:
    """Whether another interpreter of this very process has an agent, which answers for all of it.

    Raises:
        ProbingError: The run directory is not safe to use.
        OSError: The run folder cannot be made.
    """
    address = _own_folder(settings).socket
    if _running is not None or not address.exists():
        return False
    with socket.socket(socket.AF_UNIX) as caller, rundir.short_path(address) as path:
        # A socket that nobody listens on any more was left by the program before an exec.
        return caller.connect_ex(path) == 0


def stop() -> None:
    """Stop the agent of this process, if one runs; the record stays."""
    global _running  # noqa: PLW0603 - as in `start`
    with forks.held_back():
        if _running is not None:
            _running.stop()
            _running = None
            atexit.unregister(_ended)
            forks.forget()


def renew(home: str = "") -> None:
    """Start anew where the run folder was removed under the agent; else do nothing.

    Args:
        home: The run directory; if not given, that of before, or one that no logout removes.

    Raises:
        Exception: It could not start, see `start`; the folder says so.
    """
    with forks.held_back():
        running = _running
        if running is None or not has_gone(running.agent.folder):
            return
        gone, settings = running.agent.folder.path, running.agent.settings
        home = home or lasting_home(settings)
        ended = "".join(f"; {action} has ended" for action in running.agent.in_force())
        stop()
        arrival = running.arrival._replace(late=True, is_early=False)
        try:
            agent = start(dataclasses.replace(settings, home=home), arrival)
        except Exception:
            report_failed_start(home=home)
            raise
        agent.problems.append(f"{gone} was removed while it ran: the record begins anew{ended}")
        agent.write_card()


def _renew_soon() -> None:
    """Start anew where that is due, in a thread of its own: the agent's has to end."""
    if _running is None or not has_gone(_running.agent.folder) or keeps_actions(_running.agent):
        return
    if has_own_threads():
        name = f"{AGENT_THREAD_PREFIX}anew"
        threading.Thread(target=try_each, args=((renew,),), name=name, daemon=True).start()
    else:
        genuine("_thread", "start_new_thread")(try_each, ((renew,),))


def detach(*, keep_record: bool) -> Leaving | None:
    """Remove the agent from this process; returns what became of it, None if none runs."""
    if _running is None:
        return None
    leaving = _depart(keep_record)
    _leave(keep_record=keep_record)
    return leaving


def current() -> Agent | None:
    """The agent of this process, if one runs."""
    return _running.agent if _running is not None else None


def _depart(keep_record: bool) -> Leaving:  # noqa: FBT001 - by the one name that it has
    """Make ready to leave: say what will stay, and how to begin."""
    left: list[str] = []
    kept = None
    if _running is not None:
        left += [*_running.remains(), *remains(_running.arrival)]
        kept = str(_running.agent.folder.path) if keep_record else None
    name = f"{AGENT_THREAD_PREFIX}detach"
    thread = threading.Thread(target=_leave_quietly, args=(keep_record,), name=name, daemon=True)
    return Leaving(kept=kept, left=tuple(left), begin=thread.start)


def _leave_quietly(keep_record: bool) -> None:  # noqa: FBT001 - as a thread calls it
    """The body of the thread that leaves: who asked has his answer, so nobody can be told more."""
    try:
        _leave(keep_record=keep_record)
    except Exception:  # noqa: BLE001 - never harm the host
        return


def _leave(*, keep_record: bool) -> None:
    """Take everything away that can be; nothing runs after this."""
    with forks.held_back():
        running = _running
        if running is None:
            return
        stop()
        has_ended = wait_for_threads()
        running.arrival.forget()
        if not keep_record:
            shutil.rmtree(running.agent.folder.path, ignore_errors=True)
        if running.arrival.is_guest and has_ended:
            unload()


def report_failed_start(*, home: str = "") -> None:
    """Leave a card that says why the agent could not start; called from an ``except``.

    Args:
        home: The run directory; empty for that of the environment.
    """
    error = sys.exc_info()[1]
    from .failed_start import advice_on, reason_of  # not needed by most processes

    reason = f"{FAILED_START}: {reason_of(error)}"
    if not home:  # where it was to be put in from outside, who did that is told
        _warn([f"{reason}; nothing is recorded: {advice_on(error)}"])
    home = home or os.environ.get("PROBING_HOME", "")
    settings = Settings(home=home if home.startswith("/") else "")
    agent = Agent(settings, _own_folder(settings))
    agent.problems.append(reason)
    agent.write_card()


def _warn(sentences: Sequence[str]) -> None:
    """Tell on stderr, where the training was started with the agent."""
    if sentences:
        from .warning import warn  # not needed by most processes

        warn(*sentences)


def _own_folder(settings: Settings) -> ProcessFolder:
    """The run folder of this process, made if need be."""
    directory = rundir.RunDirectory(own_place(settings).path)
    return directory.create_folder(os.getpid(), process.start_time(os.getpid()) or 0)


def _ended() -> None:
    """Runs at the end of the process."""
    global _running
    running, _running = _running, None
    if running is not None:
        running.end(is_exit=True)
        try_each((lambda: _shrink(running.agent.folder), running.keep_interrupt))


def _shrink(folder: ProcessFolder) -> None:
    """Give back what was reserved and never written."""
    from ..rundir.pruning import shrink  # not needed before

    shrink(folder)


def _forked() -> None:
    """Runs in a forked child, before anything else does."""
    global _running
    running, _running = _running, None
    if running is not None:
        running.abandon()
