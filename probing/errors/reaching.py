"""The errors of finding a process, and of getting an answer from it."""

from __future__ import annotations

from typing import ClassVar

from .root import Refused, Unreachable, UsageError


class BadEndpoint(UsageError):
    """The endpoint names no process."""

    code = "bad_endpoint"
    help = (
        "An endpoint is a pid, host:port, [v6]:port, http(s)://host:port, a socket path, rank:N,"
        " job:NAME/rank:N, a process name or the run folder of a process; for several processes"
        " all, job:NAME, rank:0-7, @HOSTFILE, slurm:, k8s:NAME. `probing list` shows what there is."
    )

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(f"{endpoint!r} is not an endpoint: {reason}.")


class NoSuchProcess(Unreachable):
    """No process, and no run folder, matches."""

    code = "no_such_process"
    status = 404
    help = "`probing list --dead` shows every process with a record, ended ones included."

    def __init__(self, what: str, gone: str = "", *, help: str | None = None) -> None:
        super().__init__(
            f"there is no process {what}, and {gone or 'no record of one'}.", help=help
        )


class NoSuchFolder(BadEndpoint):
    """There is no run folder and no socket where the endpoint says."""

    code = "no_such_folder"
    status = 404
    exit_code = 3
    help = NoSuchProcess.help

    def __init__(self, path: str) -> None:
        UsageError.__init__(self, f"there is no process at {path}, and no record of one.")


class NotProbed(Unreachable):
    """The process is alive, but no agent is in it."""

    code = "not_probed"
    status = 404
    help = (
        "`probing attach PID` puts one in without a restart, and so does --attach with `query`,"
        " `eval`, `memory` and most other commands. `backtrace` works without an agent."
    )

    def __init__(
        self, pid: int, why: str = "it has no probing agent", *, help: str | None = None
    ) -> None:
        way_out = self.help.replace("PID", str(pid)) if help is None else help
        super().__init__(f"process {pid} is alive, but {why}.", help=way_out)
        self.pid = pid


class NotPython(NotProbed):
    """The process runs no Python."""

    code = "not_python"
    help = "`probing list --all` shows the Python processes."

    def __init__(self, pid: int, *, help: str | None = None) -> None:
        super().__init__(pid, "it is not a Python process", help=help)


class ProcessEnded(Unreachable):
    """The process has ended: only its recorded tables can be asked."""

    code = "process_ended"
    status = 410
    help = (
        "`hang` says how it ended. What it recorded still answers: `doctor`, `overview`, `oom`,"
        " `backtrace` where it left a stack, and `query` on the tables that have rows in `tables`."
    )

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
        because = f" ({why})" if why else ""
        super().__init__(f"{who} did not answer within {round(seconds, 2):g} s{because}.")


class NotProbing(Unreachable):
    """Nothing, or something other than probing, answers at an address."""

    code = "not_probing"
    help = "Check host and port: `probing list` on that machine shows where its agents listen."
    refused: ClassVar[str] = "the connection was refused"

    def __init__(self, address: str, reason: str, *, help: str | None = None) -> None:
        super().__init__(f"there is no probing agent at {address}: {reason}.", help=help)
        self.address, self.reason = address, reason


class ConnectionLost(Unreachable):
    """The other side closed the connection before it had answered."""

    code = "connection_lost"
    help = "Its process may have just ended, or be at its limit of connections: try again."

    def __init__(self, address: str, *, may_want_tls: bool = False) -> None:
        """Say so; that the server may want TLS is for who has asked one without."""
        super().__init__(f"{address} closed the connection before an answer came.")
        if may_want_tls:
            self.help = (
                f"{self.help[:-1]}; or the server requires https://: set PROBING_TLS_FINGERPRINT"
                " or PROBING_TLS_CA."
            )


class NoPermission(Refused):
    """The operating system says no."""

    code = "no_permission"

    def __init__(self, what: str, *, help: str = "Ask as the same user, or as root.") -> None:
        super().__init__(f"no permission: {what}.", help=help)


class UnsafeRunDirectory(Refused):
    """The run directory is not one that only its owner can write to."""

    code = "unsafe_run_directory"

    help = "Set PROBING_HOME to a folder that is yours alone."

    def __init__(self, path: str, reason: str, *, help: str | None = None) -> None:
        super().__init__(f"the run directory {path} is not safe: {reason}.", help=help)


class Untrusted(Refused):
    """A server showed a certificate that nothing vouches for; it was sent nothing."""

    code = "untrusted"
    help = (
        "Name the file of the authority's or the server's certificate with --tls-ca"
        " (PROBING_TLS_CA), or the certificate's fingerprint with --tls-fingerprint"
        " (PROBING_TLS_FINGERPRINT)."
    )

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the certificate of {address} is not trusted: {reason}.")


class Unproven(Refused):
    """Nothing proves who is at an address, so neither token nor question was sent there."""

    code = "unproven"
    help = (
        "Say whom you believe with --tls-ca or --tls-fingerprint, or forward the port to this"
        " machine by ssh; PROBING_INSECURE_PLAINTEXT=1 sends tokens, code and answers unencrypted."
    )

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} was not asked: {reason}.")
