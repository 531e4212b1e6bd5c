"""The root of the tree of errors, and its branches."""

from __future__ import annotations

from typing import Any, ClassVar


class ProbingError(Exception):
    """The root of the tree; never raised itself."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    help: str = ""

    def __init__(self, message: str, *, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if help is not None:
            self.help = help

    @property
    def detail(self) -> dict[str, Any]:
        """Facts for programs, beside the sentence for people."""
        return {}

    def is_a(self, *kinds: type[ProbingError]) -> bool:
        """Whether it is one of these here, or was exactly one of these where it was reported."""
        return isinstance(self, kinds) or self.code in {kind.code for kind in kinds}

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows in place of a traceback, which would be of our code."""
        return [f"{type(self).__name__}: {self.message}", *([self.help] if self.help else [])]


class UsageError(ProbingError):
    """The command or request is not one that can be carried out."""

    code = "usage"
    status = 400
    exit_code = 2


class Unreachable(ProbingError):
    """Nothing answers at the endpoint."""

    code = "unreachable"
    status = 503
    exit_code = 3


class Refused(ProbingError):
    """The caller may not do this."""

    code = "refused"
    status = 403
    exit_code = 4


class TimedOut(ProbingError):
    """The time limit ran out."""

    code = "timed_out"
    status = 504
    exit_code = 5
    help = "Give it more time with --timeout SECONDS."


class InternalError(ProbingError):
    """Something in probing itself went wrong."""

    code = "internal"
    help = "Please report it with the command that led to it."

    def __init__(self, what: str) -> None:
        super().__init__(f"internal error: {what}.")


class RemoteError(ProbingError):
    """An error that another process reported, with its own code, status and exit code."""

    def __init__(
        self, *, code: str, status: int, exit_code: int, message: str, help: str, detail: Any
    ) -> None:
        super().__init__(message, help=help)
        self.code, self.status, self.exit_code = code, status, exit_code  # type: ignore[misc]
        self._detail = detail if isinstance(detail, dict) else {}

    @property
    def detail(self) -> dict[str, Any]:
        """The facts as they were sent."""
        return self._detail
