"""How the agent came into a process, and how it leaves: what it takes with it and what it cannot.

Rules of this file: standard library only; looks at the whole process, and changes nothing in it but
the list of loaded modules, last of all. What cannot be taken back is a sentence.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import NamedTuple

from ..safety import forks
from ..safety.this_thread import thread_name
from .recording.safe_points import AGENT_THREAD_PREFIX

_PACKAGE = __name__.removesuffix(".agent.leaving")
"""What is to be forgotten: the package that this is a part of."""
_KEPT_MODULE = forks.__name__
_OWNED_MODULE = f"{_PACKAGE}.agent.sources.accelerator.owned"
_PATIENCE_S = 5.0
_SERVER_PACKAGES = frozenset(
    {
        "aiohappyeyeballs",
        "aiohttp",
        "aiosignal",
        "async_timeout",
        "attr",
        "attrs",
        "frozenlist",
        "idna",
        "multidict",
        "propcache",
        "yarl",
    }
)
"""What the HTTP server loads beside the standard library."""


class Arrival(NamedTuple):
    """How the agent came, and so what it has to undo.

    Attributes:
        late: Whether a training may be in the middle of a step.
        is_early: Whether torch has only just been imported, so that recording can wait for its use.
        is_guest: Whether the process had loaded nothing of probing before.
        places: Folders of the operator's who attached: they hold what may be missing here.
        forget: Undoes what waits for torch.
        loaded: The modules that were loaded before.
    """

    late: bool = False
    is_early: bool = False
    is_guest: bool = False
    places: tuple[str, ...] = ()
    forget: Callable[[], None] = lambda: None
    loaded: frozenset[str] = frozenset()


class Leaving(NamedTuple):
    """What becomes of the process when the agent leaves.

    Attributes:
        kept: The run folder, if the record is kept.
        left: What cannot be taken back, one sentence each.
        begin: Leaves, in a thread of its own.
    """

    kept: str | None
    left: tuple[str, ...]
    begin: Callable[[], None]


def remains(arrival: Arrival) -> Iterator[str]:
    """What stays in the process for reasons that lie in Python, one sentence each."""
    yield (
        "functions given to os.register_at_fork, which Python cannot forget: they do nothing"
        f" ({_KEPT_MODULE})."
    )
    packages = sorted(_server_packages(arrival))
    if packages:
        names = ", ".join(packages)
        yield f"imported modules: {names}. Compiled code that is loaded cannot be unloaded."
    if not arrival.is_guest or is_used_elsewhere():
        yield "the modules of probing: the program, or its start-up hook, has imported them too."


def _server_packages(arrival: Arrival) -> set[str]:
    """The packages that were loaded for the server."""
    found = set()
    for name, module in sys.modules.copy().items():
        top = name.partition(".")[0]
        if top in _SERVER_PACKAGES:
            file = getattr(module, "__file__", None) or ""
            borrowed = [p for p in arrival.places if p not in sys.path and file.startswith(p)]
            if name not in arrival.loaded or borrowed:
                found.add(top)
    return found


def is_used_elsewhere() -> bool:
    """Whether a module that is not ours refers to one of ours, or to something in it."""
    ours = {id(module) for name, module in sys.modules.copy().items() if _is_ours(name)}
    for name, module in sys.modules.copy().items():
        if type(module) is ModuleType and not _is_ours(name):
            for value in list(vars(module).values()):
                if id(value) in ours:
                    return True
                # No other type is asked: to look at an object may run code of the user's.
                if type(value) in (FunctionType, type) and _is_ours(str(value.__module__)):
                    return True
    return False


def _is_ours(name: str) -> bool:
    return name == _PACKAGE or name.startswith(f"{_PACKAGE}.")


def threads() -> list[threading.Thread]:
    """The agent's threads but the calling one."""
    own = threading.current_thread()
    return [
        thread
        for thread in threading.enumerate()
        if thread_name(thread).startswith(AGENT_THREAD_PREFIX) and thread is not own
    ]


def wait_for_threads() -> bool:
    """Wait for the end of the agent's other threads; returns whether they have all ended."""
    end = time.monotonic() + _PATIENCE_S
    for thread in threads():
        thread.join(max(0.0, end - time.monotonic()))
    return not threads()


def unload() -> None:
    """Have Python forget the modules of probing, unless somebody uses them.

    What still runs, or is referred to, lives on as long as that; nothing more is imported by it.
    """
    if is_used_elsewhere():
        return
    owned = sys.modules.get(_OWNED_MODULE)
    kept = {_KEPT_MODULE, *([_OWNED_MODULE] if owned is not None and owned.is_needed() else [])}
    for name in list(sys.modules):
        if _is_ours(name) and name not in kept:
            del sys.modules[name]
