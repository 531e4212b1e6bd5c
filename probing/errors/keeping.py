"""The errors of a history: runs that are kept as files."""

from __future__ import annotations

from .root import ProbingError, Refused, TimedOut, Unreachable, UsageError


class HistoryUnwritable(UsageError):
    """The folder of a history cannot be written to: no room, no right, no folder."""

    code = "history_unwritable"
    status = 507
    help = "Do it again once it can: that goes on where this one ended, and no row comes twice."

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(f"the history {folder} cannot be written: {reason}.")


class HistoryBusy(Refused):
    """Another export of the same process, or another compaction, is under way."""

    code = "history_busy"
    status = 409
    help = "Do it again when that is done; what it has done is left out then."

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} by another process.")


class DamagedHistory(ProbingError):
    """A file of a history is damaged.

    Attributes:
        reason: What is wrong with it.
    """

    code = "history_damaged"
    help = "Move the file out of the history; the rest can be asked without it."

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the file {path} is damaged: {reason}.")
        self.reason = reason


class NoHistory(UsageError):
    """There is no history at a place."""

    code = "no_history"
    status = 404
    help = "`probing ENDPOINT export FOLDER` begins one."

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(f"there is no history in {folder}: {reason}.")


class NoSuchRun(UsageError):
    """A run of a history is not there, or not the only one of its name."""

    code = "no_such_run"
    status = 404
    help = "`probing history runs` lists the runs."

    def __init__(self, what: str, others: str) -> None:
        super().__init__(f"{what}{f': {others}' if others else ''}.")


class StoreUnreachable(Unreachable):
    """The object store of a history gives no answer, or refuses."""

    code = "store_unreachable"
    help = (
        "The variables AWS_*, the files in ~/.aws or the role of the machine say who asks S3,"
        " AWS_ENDPOINT_URL which server; of gs:// GOOGLE_APPLICATION_CREDENTIALS."
    )

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"the store {store} cannot be asked: {reason}.")


class StoreTimedOut(TimedOut):
    """The object store of a history has not answered within the time limit."""

    code = "store_timed_out"
    help = "See that the store is well, or give it more time with --timeout SECONDS."

    def __init__(self, store: str, limit_s: float) -> None:
        super().__init__(f"the store {store} has not answered within the limit of {limit_s:g} s.")
