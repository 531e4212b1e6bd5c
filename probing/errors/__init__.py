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

from .root import InternalError as InternalError
from .root import ProbingError as ProbingError
from .root import Refused as Refused
from .root import RemoteError as RemoteError
from .root import TimedOut as TimedOut
from .root import Unreachable as Unreachable
from .root import UsageError as UsageError

if TYPE_CHECKING:
    from .acting import ActRefused as ActRefused
    from .acting import ActTimedOut as ActTimedOut
    from .acting import NoSuchAction as NoSuchAction
    from .attaching import AttachFailed as AttachFailed
    from .attaching import AttachRefused as AttachRefused
    from .attaching import AttachWaiting as AttachWaiting
    from .evaluating import EvalCancelled as EvalCancelled
    from .evaluating import EvalTimedOut as EvalTimedOut
    from .evaluating import NoStepCame as NoStepCame
    from .evaluating import NoSuchFrame as NoSuchFrame
    from .evaluating import NoSuchJob as NoSuchJob
    from .evaluating import NoSuchThread as NoSuchThread
    from .fitting import FitRefused as FitRefused
    from .fitting import FitTimedOut as FitTimedOut
    from .querying import LiveTooLarge as LiveTooLarge
    from .querying import QueryTimedOut as QueryTimedOut
    from .querying import SqlError as SqlError
    from .querying import SqlRefused as SqlRefused
    from .querying import SqlTooLarge as SqlTooLarge
    from .querying import SqlWorkerDied as SqlWorkerDied
    from .querying import SqlWorkerRests as SqlWorkerRests
    from .reaching import BadEndpoint as BadEndpoint
    from .reaching import ConnectionLost as ConnectionLost
    from .reaching import NoPermission as NoPermission
    from .reaching import NoSuchProcess as NoSuchProcess
    from .reaching import NotAnswering as NotAnswering
    from .reaching import NotProbed as NotProbed
    from .reaching import NotProbing as NotProbing
    from .reaching import NotPython as NotPython
    from .reaching import ProcessEnded as ProcessEnded
    from .reaching import Unproven as Unproven
    from .reaching import UnsafeRunDirectory as UnsafeRunDirectory
    from .reaching import Untrusted as Untrusted
    from .recording import ArmRefused as ArmRefused
    from .recording import ArmTimedOut as ArmTimedOut
    from .recording import BadSetting as BadSetting
    from .recording import NoBatch as NoBatch
    from .recording import NoLabels as NoLabels
    from .recording import ProfileRefused as ProfileRefused
    from .recording import ProfileTimedOut as ProfileTimedOut
    from .recording import RingError as RingError
    from .serving import BadHost as BadHost
    from .serving import BadOrigin as BadOrigin
    from .serving import BadRequest as BadRequest
    from .serving import BadToken as BadToken
    from .serving import Busy as Busy
    from .serving import EvalNotAllowed as EvalNotAllowed
    from .serving import NoSuchRoute as NoSuchRoute
    from .serving import ReadOnlyToken as ReadOnlyToken
    from .serving import RequestTimedOut as RequestTimedOut
    from .serving import RequestTooLarge as RequestTooLarge
    from .serving import TooManyRequests as TooManyRequests
    from .serving import Vetoed as Vetoed
    from .serving import WritingNotAllowed as WritingNotAllowed
    from .serving import WrongMethod as WrongMethod

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
