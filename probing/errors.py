"""Every error probing raises, and what each means to a person, a program and a socket.

    ProbingError
    ├── UsageError            bad endpoint, setting, option or request
    │   ├── BadEndpoint
    │   ├── BadSetting
    │   ├── BadRequest
    │   ├── RequestTooLarge
    │   └── NoSuchRoute
    ├── SqlError              the statement cannot be run
    │   ├── SqlRefused        it is not one read-only statement
    │   ├── SqlTooLarge       the answer does not fit the memory it may use
    │   └── SqlWorkerDied     it killed the process that ran it
    ├── Unreachable           nobody to ask
    │   ├── NoSuchProcess
    │   ├── NotProbed         the process lives, but has no agent
    │   │   └── NotPython
    │   ├── ProcessEnded
    │   ├── NotAnswering
    │   ├── NotProbing        nothing, or something else, answered there
    │   ├── ConnectionLost
    │   ├── AttachFailed      no way into the process was open
    │   ├── AttachWaiting     the agent is in, but waits for the interpreter lock
    │   └── Busy
    ├── Refused               not allowed
    │   ├── NoPermission
    │   ├── BadToken
    │   ├── BadOrigin
    │   ├── AttachRefused     no agent can be put into the process as it is
    │   ├── ProfileRefused    the steps cannot be profiled as things are
    │   ├── ArmRefused        nothing can be recorded on demand as things are
    │   └── UnsafeRunDirectory
    ├── TimedOut
    │   ├── QueryTimedOut
    │   ├── EvalTimedOut
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
"""

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


class UsageError(ProbingError):
    """The command or request is not one that can be carried out."""

    code = "usage"
    status = 400
    exit_code = 2


class BadEndpoint(UsageError):
    """The endpoint names no process."""

    code = "bad_endpoint"
    help = (
        "An endpoint is a pid, host:port, [v6]:port, http(s)://host:port, a socket path, rank:N,"
        " a process name or the run folder of a process. `probing list` shows what there is."
    )

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(f"{endpoint!r} is not an endpoint: {reason}.")


class BadSetting(UsageError):
    """A setting is unknown, or its value is not one it can take."""

    code = "bad_setting"
    help = "`probing ENDPOINT config` lists the settings with their values and meaning."

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"setting {name}: {reason}.")


class BadRequest(UsageError):
    """A request that the server cannot read."""

    code = "bad_request"
    help = "GET /v1/openapi.json describes every request."

    def __init__(self, reason: str) -> None:
        super().__init__(f"bad request: {reason}.")


class RequestTooLarge(UsageError):
    """A request over the size limit."""

    code = "request_too_large"
    status = 413
    help = "Send less, or raise the limit with PROBING_MAX_BODY_BYTES."

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what} is larger than {limit:,} bytes.")


class NoSuchRoute(UsageError):
    """The server has no such method and path."""

    code = "no_such_route"
    status = 404
    help = "GET /v1/openapi.json lists the routes."

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"there is no route {method} {path[:200]}.")


class SqlError(ProbingError):
    """The SQL engine does not accept or cannot finish the statement.

    Args:
        reason: One line of what is wrong.
        sql: The statement, to point into.
        position: Character offset of the fault in `sql`, if known.
        suggestion: The nearest thing that exists, if any.
    """

    code = "sql"
    status = 400
    exit_code = 1
    help = "`probing ENDPOINT tables` lists every table and column."

    def __init__(
        self,
        reason: str,
        *,
        sql: str = "",
        position: int | None = None,
        suggestion: str | None = None,
    ) -> None:
        self.sql, self.position, self.suggestion = sql, position, suggestion
        message = reason if reason.endswith((".", "!", "?")) else f"{reason}."
        if suggestion:
            message += f" Did you mean {suggestion}?"
        super().__init__(message)

    @property
    def detail(self) -> dict[str, Any]:
        """Where the fault is: ``position`` (character offset), ``line``, ``column`` (from 1)."""
        if self.position is None:
            return {}
        before = self.sql[: self.position]
        return {
            "position": self.position,
            "line": before.count("\n") + 1,
            "column": len(before) - (before.rfind("\n") + 1) + 1,
            "excerpt": self.caret(),
        }

    def caret(self) -> str:
        """The faulty line with a caret under the place, or nothing when it is unknown."""
        if self.position is None:
            return ""
        start = self.sql.rfind("\n", 0, self.position) + 1
        end = self.sql.find("\n", self.position)
        line = self.sql[start : None if end < 0 else end]
        column = self.position - start
        if len(line) > 100:
            cut = max(0, column - 50)
            line, column = line[cut : cut + 100], column - cut
        return f"{line}\n{' ' * column}^"


class SqlRefused(SqlError):
    """The text is not exactly one statement that only reads."""

    code = "sql_refused"
    status = 403
    exit_code = 1
    help = "Send one SELECT, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN statement."


class SqlTooLarge(SqlError):
    """The statement needs more memory than a query may use."""

    code = "sql_too_large"
    status = 413
    help = "Ask for fewer rows or columns, aggregate, or raise PROBING_QUERY_MEMORY_MIB."


class SqlWorkerDied(SqlError):
    """The statement killed the helper process that ran it; the training process is not touched."""

    code = "sql_worker_died"
    status = 500

    def __init__(self, how: str) -> None:
        super().__init__(f"the statement ended the SQL worker process ({how})")


class Unreachable(ProbingError):
    """There is nobody at the endpoint who could answer."""

    code = "unreachable"
    status = 503
    exit_code = 3


class NoSuchProcess(Unreachable):
    """No process, and no run folder, matches."""

    code = "no_such_process"
    status = 404
    help = "`probing list --dead` shows every process with a record, ended ones included."

    def __init__(self, what: str) -> None:
        super().__init__(f"there is no process {what}, and no record of one.")


class NotProbed(Unreachable):
    """The process is alive, but no agent is in it."""

    code = "not_probed"
    status = 404
    help = (
        "`probing attach PID` puts one in without a restart; `query`, `summary`, `eval`, `tables`"
        " and `config` do so themselves with --attach. `backtrace` works without an agent."
    )

    def __init__(
        self, pid: int, why: str = "it has no probing agent", *, help: str | None = None
    ) -> None:
        way_out = self.help.replace("PID", str(pid)) if help is None else help
        super().__init__(f"process {pid} is alive, but {why}.", help=way_out)


class NotPython(NotProbed):
    """The process runs no Python."""

    code = "not_python"

    def __init__(self, pid: int) -> None:
        super().__init__(
            pid,
            "it is not a Python process",
            help="`probing list --all` shows the Python processes.",
        )


class ProcessEnded(Unreachable):
    """The process has ended: only its recorded tables can be asked."""

    code = "process_ended"
    status = 410
    help = "Its recorded tables still answer: `query` on python.torch_trace and python.steps."

    def __init__(self, pid: int, what: str) -> None:
        super().__init__(f"process {pid} has ended, so {what}.")


class NotAnswering(Unreachable):
    """The agent did not answer in time."""

    code = "not_answering"
    status = 504
    exit_code = 5
    help = (
        "What needs no help from the process still works: `query` on python.torch_trace and"
        " python.steps, and `backtrace`."
    )

    def __init__(self, who: str, seconds: float, why: str = "") -> None:
        super().__init__(f"{who} did not answer within {seconds:g} s{f' ({why})' if why else ''}.")


class NotProbing(Unreachable):
    """Nothing, or something other than probing, answers at an address."""

    code = "not_probing"
    help = "Check host and port: `probing list` on that machine shows where its agents listen."

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"there is no probing agent at {address}: {reason}.")


class ConnectionLost(Unreachable):
    """The other side closed the connection before it had answered."""

    code = "connection_lost"
    help = "Its process may have just ended, or hold as many connections as it may; try again."

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} closed the connection before an answer came.")


class AttachFailed(Unreachable):
    """Every way into the process was tried, and none was open."""

    code = "attach_failed"
    help = (
        "Nothing was changed in it, so it may be tried again; `backtrace` works without an agent."
    )

    def __init__(self, pid: int, why: str, *, help: str | None = None) -> None:
        super().__init__(f"no agent could be put into process {pid}: {why}.", help=help)


class AttachWaiting(Unreachable):
    """The agent's code is in the process and waits, harmlessly, for the interpreter lock."""

    code = "attach_waiting"
    status = 504
    exit_code = 5
    help = (
        "It starts by itself once the lock is free, and does nothing until then. `backtrace` shows"
        " now what the process is doing."
    )

    def __init__(self, pid: int, why: str) -> None:
        super().__init__(f"the agent is in process {pid} but cannot start yet: {why}.")


class Busy(Unreachable):
    """The agent has as many requests in hand as it may."""

    code = "busy"
    status = 503
    help = "Try again in a moment."

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"the agent already has {limit} {what} in hand.")


class Refused(ProbingError):
    """The caller may not do this."""

    code = "refused"
    status = 403
    exit_code = 4


class NoPermission(Refused):
    """The operating system says no."""

    code = "no_permission"

    def __init__(self, what: str, *, help: str = "Ask as the same user, or as root.") -> None:
        super().__init__(f"no permission: {what}.", help=help)


class BadToken(Refused):
    """A TCP request without the right token."""

    code = "bad_token"
    status = 401
    help = (
        "Put the token in PROBING_TOKEN or name its file with --token-file; the process keeps it in"
        " the file `token` of its run folder."
    )

    def __init__(self, *, missing: bool) -> None:
        super().__init__(f"the token is {'missing' if missing else 'wrong'}.")


class BadOrigin(Refused):
    """A request that a web page, or another name for this host, may have sent."""

    code = "bad_origin"
    help = "Ask from a program, at the address the agent listens on."

    def __init__(self, header: str, value: str) -> None:
        super().__init__(f"requests with {header} {value[:80]!r} are not served.")


class AttachRefused(Refused):
    """The process is in a state, or of a kind, in which no agent can be put into it."""

    code = "attach_refused"
    help = "`backtrace` works without an agent."

    def __init__(self, pid: int, why: str, *, help: str) -> None:
        super().__init__(f"no agent can be put into process {pid}: {why}.", help=help)


class ProfileRefused(Refused):
    """The steps of a process cannot be profiled as things are."""

    code = "profile_refused"
    status = 409
    help = "`profile --sampling 100` works on every Python process, from outside."

    def __init__(self, why: str, *, help: str | None = None) -> None:
        super().__init__(f"no steps can be profiled: {why}.", help=help)


class ArmRefused(Refused):
    """Nothing can be recorded on demand as things are."""

    code = "arm_refused"
    status = 409
    help = "`arm` alone shows what is armed, and `arm WHAT --off` ends it."

    def __init__(self, why: str, *, help: str | None = None) -> None:
        super().__init__(f"it cannot be armed: {why}.", help=help)


class UnsafeRunDirectory(Refused):
    """The run directory is not one that only its owner can write to."""

    code = "unsafe_run_directory"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"the run directory {path} is not safe: {reason}.",
            help="Remove it, `chmod 700` it, or set PROBING_HOME to another folder.",
        )


class TimedOut(ProbingError):
    """The time limit ran out."""

    code = "timed_out"
    status = 504
    exit_code = 5
    help = "Give it more time with --timeout SECONDS."


class QueryTimedOut(TimedOut):
    """A statement ran into its time limit and was ended."""

    code = "query_timed_out"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the query was ended after its limit of {seconds:g} s.")


class EvalTimedOut(TimedOut):
    """Code sent by eval ran into its time limit."""

    code = "eval_timed_out"

    def __init__(self, message: str) -> None:
        super().__init__(message)


class NoBatch(TimedOut):
    """The training has neither fetched a batch nor called its model in time."""

    code = "no_batch"
    help = (
        "`probing ENDPOINT backtrace` shows where it is; `probing ENDPOINT dataloaders` whether it"
        " waits for a batch."
    )

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"the training has neither fetched a batch nor called its model within {limit_s:g} s."
        )


class NoLabels(ProbingError):
    """What the training reads has no label for each token."""

    code = "no_labels"
    status = 404
    help = (
        "Labels are looked for among integer tensors with two dimensions, by names such as"
        " input_ids and labels, and by their order where they have no names."
    )

    def __init__(self, seen: str) -> None:
        super().__init__(f"no tokens with labels are among what the training reads: {seen}.")


class ArmTimedOut(TimedOut):
    """The training did not come to the end of a step in time."""

    code = "arm_timed_out"
    help = "Give it more time with --timeout SECONDS. `backtrace` shows what it is doing."

    def __init__(self, seconds: float, done: int, steps: int) -> None:
        super().__init__(
            f"the training came to no end of a step within {seconds:g} s; {done} of {steps} steps"
            " are done, and the rest was called off."
        )


class ProfileTimedOut(TimedOut):
    """The training did not come to the end of a step in time."""

    code = "profile_timed_out"
    help = (
        "Give it more time with --timeout SECONDS. `backtrace` shows what it is doing, and `profile"
        " --sampling 100` profiles it without its help."
    )

    def __init__(self, seconds: float, what: str) -> None:
        super().__init__(f"the training came to no end of a step within {seconds:g} s, so {what}.")


class RingError(ProbingError):
    """A ring file cannot be made or read."""

    code = "ring"
    help = "Recording of this table is off; the training is not affected."

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"ring {source}: {reason}.")


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


def error_classes() -> tuple[type[ProbingError], ...]:
    """Every class of the tree but `RemoteError`, root first."""
    found: list[type[ProbingError]] = [ProbingError]
    for cls in found:
        found.extend(sub for sub in cls.__subclasses__() if sub is not RemoteError)
    return tuple(found)
