"""Every error probing raises, and what each means to a person, a program and a socket.

    ProbingError
    ├── UsageError            bad endpoint, setting, option or request
    │   ├── BadEndpoint
    │   ├── BadSetting
    │   ├── BadRequest
    │   ├── RequestTooLarge
    │   ├── WrongMethod
    │   ├── NoSuchRoute
    │   ├── NoSuchThread
    │   ├── NoSuchFrame
    │   ├── NoSuchJob         no eval of that number
    │   └── NoSuchAction
    ├── SqlError              the statement cannot be run
    │   ├── SqlRefused        it is not one read-only statement
    │   ├── SqlTooLarge       the answer does not fit the memory it may use
    │   ├── LiveTooLarge      a live table has more than an answer may
    │   ├── SqlWorkerDied     it killed the process that ran it
    │   └── SqlWorkerRests    that process has ended too often of late
    ├── Unreachable           nobody to ask
    │   ├── NoSuchProcess
    │   ├── NotProbed         the process lives, but has no agent
    │   │   └── NotPython
    │   ├── ProcessEnded
    │   ├── NotAnswering
    │   ├── NotProbing        nothing, or something else, answered there
    │   ├── ConnectionLost
    │   ├── AttachFailed      no way into the process was open
    │   ├── AttachWaiting     the agent is in, but has not begun or not finished
    │   ├── Busy
    │   └── TooManyRequests
    ├── Refused               not allowed
    │   ├── NoPermission
    │   ├── BadToken
    │   ├── ReadOnlyToken     it may read, and this does more
    │   ├── EvalNotAllowed    code over TCP
    │   ├── WritingNotAllowed  a file at a place named over TCP
    │   ├── BadHost
    │   ├── BadOrigin
    │   ├── Unproven          nothing proves who is at an address: it gets no token
    │   ├── Untrusted         a server's certificate
    │   ├── AttachRefused     no agent can be put into the process as it is
    │   ├── ProfileRefused    the steps cannot be profiled as things are
    │   ├── ArmRefused        nothing can be recorded on demand as things are
    │   ├── FitRefused        memory cannot be predicted as things are
    │   ├── ActRefused        the action cannot be applied as things are
    │   ├── EvalCancelled     before its turn came
    │   ├── Vetoed            by an audit hook of the process
    │   └── UnsafeRunDirectory
    ├── TimedOut
    │   ├── RequestTimedOut
    │   ├── QueryTimedOut
    │   ├── EvalTimedOut
    │   ├── NoStepCame        at whose end an eval was to be repeated
    │   ├── ActTimedOut       the training has not come to the end of a step
    │   ├── FitTimedOut
    │   ├── NoBatch           the training has not come to a batch
    │   ├── ArmTimedOut       the training has not come to the end of a step
    │   └── ProfileTimedOut
    ├── NoLabels              its batches hold no label for each token
    ├── RingError             a ring file that cannot be made or read
    └── InternalError         a fault of ours

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
    from .acting import (
        ActRefused as ActRefused,
        ActTimedOut as ActTimedOut,
        NoSuchAction as NoSuchAction,
    )
    from .attaching import (
        AttachFailed as AttachFailed,
        AttachRefused as AttachRefused,
        AttachWaiting as AttachWaiting,
    )
    from .evaluating import (
        EvalCancelled as EvalCancelled,
        EvalTimedOut as EvalTimedOut,
        NoStepCame as NoStepCame,
        NoSuchFrame as NoSuchFrame,
        NoSuchJob as NoSuchJob,
        NoSuchThread as NoSuchThread,
    )
    from .fitting import FitRefused as FitRefused, FitTimedOut as FitTimedOut
    from .querying import (
        LiveTooLarge as LiveTooLarge,
        QueryTimedOut as QueryTimedOut,
        SqlError as SqlError,
        SqlRefused as SqlRefused,
        SqlTooLarge as SqlTooLarge,
        SqlWorkerDied as SqlWorkerDied,
        SqlWorkerRests as SqlWorkerRests,
    )
    from .reaching import (
        BadEndpoint as BadEndpoint,
        ConnectionLost as ConnectionLost,
        NoPermission as NoPermission,
        NoSuchProcess as NoSuchProcess,
        NotAnswering as NotAnswering,
        NotProbed as NotProbed,
        NotProbing as NotProbing,
        NotPython as NotPython,
        ProcessEnded as ProcessEnded,
        Unproven as Unproven,
        UnsafeRunDirectory as UnsafeRunDirectory,
        Untrusted as Untrusted,
    )
    from .recording import (
        ArmRefused as ArmRefused,
        ArmTimedOut as ArmTimedOut,
        BadSetting as BadSetting,
        NoBatch as NoBatch,
        NoLabels as NoLabels,
        ProfileRefused as ProfileRefused,
        ProfileTimedOut as ProfileTimedOut,
        RingError as RingError,
    )
    from .serving import (
        BadHost as BadHost,
        BadOrigin as BadOrigin,
        BadRequest as BadRequest,
        BadToken as BadToken,
        Busy as Busy,
        EvalNotAllowed as EvalNotAllowed,
        NoSuchRoute as NoSuchRoute,
        ReadOnlyToken as ReadOnlyToken,
        RequestTimedOut as RequestTimedOut,
        RequestTooLarge as RequestTooLarge,
        TooManyRequests as TooManyRequests,
        Vetoed as Vetoed,
        WritingNotAllowed as WritingNotAllowed,
        WrongMethod as WrongMethod,
    )

_HOMES = {
    "ActRefused": "acting",
    "ActTimedOut": "acting",
    "ArmRefused": "recording",
    "ArmTimedOut": "recording",
    "AttachFailed": "attaching",
    "AttachRefused": "attaching",
    "AttachWaiting": "attaching",
    "BadEndpoint": "reaching",
    "BadHost": "serving",
    "BadOrigin": "serving",
    "BadRequest": "serving",
    "BadSetting": "recording",
    "BadToken": "serving",
    "Busy": "serving",
    "ConnectionLost": "reaching",
    "EvalCancelled": "evaluating",
    "EvalNotAllowed": "serving",
    "EvalTimedOut": "evaluating",
    "FitRefused": "fitting",
    "FitTimedOut": "fitting",
    "LiveTooLarge": "querying",
    "NoBatch": "recording",
    "NoLabels": "recording",
    "NoPermission": "reaching",
    "NoStepCame": "evaluating",
    "NoSuchAction": "acting",
    "NoSuchFrame": "evaluating",
    "NoSuchJob": "evaluating",
    "NoSuchProcess": "reaching",
    "NoSuchRoute": "serving",
    "NoSuchThread": "evaluating",
    "NotAnswering": "reaching",
    "NotProbed": "reaching",
    "NotProbing": "reaching",
    "NotPython": "reaching",
    "ProcessEnded": "reaching",
    "ProfileRefused": "recording",
    "ProfileTimedOut": "recording",
    "QueryTimedOut": "querying",
    "ReadOnlyToken": "serving",
    "RequestTimedOut": "serving",
    "RequestTooLarge": "serving",
    "RingError": "recording",
    "SqlError": "querying",
    "SqlRefused": "querying",
    "SqlTooLarge": "querying",
    "SqlWorkerDied": "querying",
    "SqlWorkerRests": "querying",
    "TooManyRequests": "serving",
    "UnsafeRunDirectory": "reaching",
    "Unproven": "reaching",
    "Untrusted": "reaching",
    "Vetoed": "serving",
    "WritingNotAllowed": "serving",
    "WrongMethod": "serving",
}


def __getattr__(name: str) -> Any:
    """Load a class from the file of its subject."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def error_classes() -> tuple[type[ProbingError], ...]:
    """Every class of the tree but `RemoteError`, root first."""
    for subject in dict.fromkeys(_HOMES.values()):
        import_module(f".{subject}", __name__)
    found: list[type[ProbingError]] = [ProbingError]
    for cls in found:
        found.extend(sub for sub in cls.__subclasses__() if sub is not RemoteError)
    return tuple(found)
