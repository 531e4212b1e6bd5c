"""The errors of putting an agent into a process."""

from __future__ import annotations

from .root import Refused, Unreachable


class AttachFailed(Unreachable):
    """Every way into the process was tried, and none was open."""

    code = "attach_failed"
    help = (
        "Nothing was changed in it, so it may be tried again; `backtrace` works without an agent."
    )

    def __init__(self, pid: int, why: str, *, help: str | None = None) -> None:
        super().__init__(f"no agent could be put into process {pid}: {why}.", help=help)


class AttachWaiting(Unreachable):
    """The agent's code is in the process, or on its way in, and has not begun or not finished."""

    code = "attach_waiting"
    status = 504
    exit_code = 5
    help = "It does nothing until then. `backtrace` shows now what the process is doing."

    def __init__(self, pid: int, why: str, *, help: str | None = None) -> None:
        super().__init__(f"the agent of process {pid} cannot start yet: {why}.", help=help)


class AttachRefused(Refused):
    """The process is in a state, or of a kind, in which no agent can be put into it."""

    code = "attach_refused"
    help = "`backtrace` works without an agent."

    def __init__(self, pid: int, why: str, *, help: str) -> None:
        super().__init__(f"no agent can be put into process {pid}: {why}.", help=help)
