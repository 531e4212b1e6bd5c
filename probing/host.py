"""The agent of this very process: two functions for a training script, one for `probing attach`.

Rules of this file: the way in for `import probing; probing.start()` and for what is injected;
everything else about the agent is in `probing.agent`. Nothing is imported before it is needed, so
that a process which is attached to can be kept from forking meanwhile.
"""

from __future__ import annotations

import os
import sys
import time

_POLL_S = 0.05
TYPE_CHECKING = False  # see above
if TYPE_CHECKING:
    from collections.abc import Sequence


def start(**settings: object) -> None:
    """Start the agent in this process; does nothing when it is running, or with PROBING_DISABLE=1.

    The settings come from the environment; those given here go before it.

    Args:
        **settings: Values by the names of `probing.settings.Settings`, such as
            ``listen="127.0.0.1:8080"``.

    Raises:
        BadSetting: There is no such setting, or it cannot have that value.
        ProbingError: The run directory is not safe to use.
        OSError: The run folder or the socket cannot be made.
    """
    from . import _boot
    from .safety import off_switch

    if off_switch.is_off(os.environ):
        return
    from .agent import lifecycle
    from .agent.leaving import Arrival
    from .settings import Settings, find
    from .settings.values import parse

    given = {find(name): value for name, value in settings.items()}
    texts = {setting.env: str(value) for setting, value in given.items()}
    for setting, value in given.items():
        parse(setting, str(value))
    in_force = Settings.from_env({**os.environ, **texts})
    lifecycle.start(in_force, Arrival(forget=_boot.forget))
    _boot.watch_for_torch()


def stop() -> None:
    """Stop the agent in this process and leave it as it was.

    What was recorded stays until the process starts another agent.
    """
    from . import _boot
    from .agent import lifecycle

    lifecycle.stop()
    _boot.forget()


def start_attached(
    home: str, *, places: Sequence[str] = (), uid: int | None = None, pid: int | None = None
) -> str:
    """Start the agent in a process that was not prepared; does nothing when it is running.

    Runs in a thread of its own, at any moment of whatever the process does. What goes wrong is also
    told by the card in the run folder.

    Args:
        home: The run directory.
        places: Folders of the operator's, who attaches from there: they hold what may be missing
            here.
        uid: The user who attaches.
        pid: The process from which he does.

    Returns:
        Why the process wants no agent; empty when it does not mind.

    Raises:
        Exception: The agent could not start.
    """
    from .safety import forks

    try:
        refused = _why_refused(uid, pid)
        if refused:
            return refused
        with forks.held_back():
            _start_late(home, tuple(places), uid=uid, pid=pid)
        _record_once_imported()
    except Exception:
        with forks.held_back():
            from . import _boot

            _boot.report(home=home)
        raise
    return ""


def _why_refused(uid: int | None, pid: int | None) -> str:
    """Why no agent may start here, which the operator may not have been able to see."""
    from .safety import forks

    with forks.held_back():  # a hook may take its time, and then a fork need not wait
        from .agent.audit.audit import ask_hooks
        from .errors import Vetoed
        from .safety import off_switch

    closed = off_switch.why_closed(os.environ, sys._xoptions)  # noqa: SLF001 - as its docs say
    if closed is not None:
        return closed
    try:
        ask_hooks("attach", uid, pid)
    except Vetoed as error:
        return error.message.rstrip(".")
    return ""


def _start_late(
    home: str, places: tuple[str, ...], *, uid: int | None = None, pid: int | None = None
) -> None:
    """Start the agent, and have it record once a training step has ended."""
    loaded = frozenset(sys.modules)
    is_guest = "probing._boot" not in loaded  # the start-up hook, and whoever has used `probing`
    from . import _boot
    from .agent import lifecycle
    from .agent.audit.request_log import Sender
    from .agent.leaving import Arrival
    from .settings import Settings

    if places:
        # They can be looked into as long as this lasts, and later no more.
        from .server import server  # noqa: F401
        from .server.sql_worker import worker_process  # noqa: F401

    lifecycle.renew(home)  # one whose run folder was removed is there, and nobody reaches it
    if lifecycle.current() is None:
        settings = Settings.from_env({**os.environ, "PROBING": "1", "PROBING_HOME": home})
        arrival = Arrival(
            late=True, is_guest=is_guest, places=places, forget=_boot.forget, loaded=loaded
        )
        agent = lifecycle.start(settings, arrival)
        with agent.changes().change(Sender(uid=uid, pid=pid), "attach", audited=False):
            pass
    _boot.watch_for_torch()


def _record_once_imported() -> None:
    """Torch may just be being imported, by another thread: have the agent wait until it is done."""
    from .agent import lifecycle

    while (agent := lifecycle.current()) is not None and "torch" in sys.modules:
        spec = getattr(sys.modules["torch"], "__spec__", None)
        if not getattr(spec, "_initializing", False):
            agent.record(late=True)
            return
        time.sleep(_POLL_S)
