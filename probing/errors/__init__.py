"""Every error probing raises, and what each means to a person, a program and a socket.

Rules of this file: an error is built from facts and makes its own sentence; it carries a
stable ``code``, the HTTP ``status`` it travels by, the ``exit_code`` of the command, and
``help``: what to do next. Exit codes: 0 done, 1 the user's code or SQL failed, 2 wrong
usage, 3 not reachable, 4 refused, 5 timed out. Nothing here does I/O.
A class stands in the file of its subject, and all are asked for here; a file is loaded when a
class of it is first asked for, because the agent's start needs few.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .root import (
    InternalError as InternalError,
    ProbingError as ProbingError,
    Refused as Refused,
    RemoteError as RemoteError,
    TimedOut as TimedOut,
    Unreachable as Unreachable,
    UsageError as UsageError,
)

if TYPE_CHECKING:
    from .acting import *  # noqa: F403 - the type checker's form of `_SUBJECTS`
    from .attaching import *  # noqa: F403 - the type checker's form of `_SUBJECTS`
    from .evaluating import *  # noqa: F403 - the type checker's form of `_SUBJECTS`
    from .fitting import *  # noqa: F403 - the type checker's form of `_SUBJECTS`
    from .keeping import *  # noqa: F403 - the type checker's form of `_SUBJECTS`
    from .querying import *  # noqa: F403 - the type checker's form of `_SUBJECTS`
    from .reaching import *  # noqa: F403 - the type checker's form of `_SUBJECTS`
    from .recording import *  # noqa: F403 - the type checker's form of `_SUBJECTS`
    from .serving import *  # noqa: F403 - the type checker's form of `_SUBJECTS`

_SUBJECTS = {
    "acting": "ActRefused ActTimedOut NoSuchAction",
    "attaching": "AttachFailed AttachRefused AttachWaiting",
    "evaluating": "EvalCancelled EvalTimedOut NoStepCame NoSuchFrame NoSuchJob NoSuchThread",
    "fitting": "FitRefused FitTimedOut",
    "keeping": (
        "DamagedHistory HistoryBusy HistoryUnwritable NoHistory NoSuchRun StoreTimedOut "
        "StoreUnreachable"
    ),
    "querying": (
        "LiveTooLarge MissingLibrary QueryTimedOut SqlError SqlRefused SqlTooLarge SqlWorkerDied "
        "SqlWorkerRests"
    ),
    "reaching": (
        "BadEndpoint ConnectionLost NoPermission NoSuchFolder NoSuchProcess NotAnswering "
        "NotProbed NotProbing NotPython ProcessEnded Unproven UnsafeRunDirectory Untrusted"
    ),
    "recording": (
        "ArmRefused ArmTimedOut BadSetting BadTable CardDamaged NoBatch NoLabels ProfileRefused "
        "ProfileTimedOut RingError"
    ),
    "serving": (
        "BadHost BadOrigin BadRequest BadToken Busy EvalNotAllowed NoSuchRoute NoThread "
        "PageMissing PluginFailed ReadOnlyToken RequestTimedOut RequestTooLarge TooManyRequests "
        "Vetoed WritingNotAllowed WrongMethod"
    ),
}
_HOMES = {name: subject for subject, names in _SUBJECTS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a class from the file of its subject."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def error_classes() -> tuple[type[ProbingError], ...]:
    """Every class of the tree but `RemoteError`, root first."""
    for subject in _SUBJECTS:
        import_module(f".{subject}", __name__)
    found: list[type[ProbingError]] = [ProbingError]
    for cls in found:
        found.extend(sub for sub in cls.__subclasses__() if sub is not RemoteError)
    return tuple(found)
