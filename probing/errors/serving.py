"""The errors of a request that a server cannot or may not carry out."""

from __future__ import annotations

from .root import ProbingError, Refused, TimedOut, Unreachable, UsageError


class BadRequest(UsageError):
    """A request that the server cannot read."""

    code = "bad_request"
    help = "GET /v1/openapi.json describes every request."

    def __init__(self, reason: str) -> None:
        super().__init__(f"bad request: {reason}.")


class PluginFailed(ProbingError):
    """What a plugin adds cannot be had, because its code fails."""

    code = "plugin_failed"
    help = "`probing ENDPOINT status` says which plugins have failed; PROBING_PLUGINS=0 loads none."

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"plugin {name} failed: {reason}.")


class RequestTooLarge(UsageError):
    """A request over the size limit."""

    code = "request_too_large"
    status = 413
    help = "Send less, or raise the limit."

    def __init__(self, what: str, limit: int, setting: str = "") -> None:
        way_out = f"Send less, or raise the limit with {setting}." if setting else None
        super().__init__(f"{what} is larger than {limit:,} bytes.", help=way_out)


class NoSuchRoute(UsageError):
    """The server has no such method and path."""

    code = "no_such_route"
    status = 404
    help = "GET /v1/openapi.json lists the routes."

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"there is no route {method} {path[:200]}.")


class WrongMethod(UsageError):
    """The server has the path, for another method."""

    code = "wrong_method"
    status = 405
    help = "GET /v1/openapi.json lists the routes."

    def __init__(self, method: str, path: str, allowed: str) -> None:
        self.allowed = allowed
        super().__init__(f"{path[:200]} is not there for {method[:20]}, but for {allowed}.")


class RequestTimedOut(TimedOut):
    """The body of a request did not come in time."""

    code = "request_timed_out"
    status = 408
    help = "Send it whole and at once."

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the body of the request did not come within {seconds:g} s.")


class Busy(Unreachable):
    """The agent is at its limit of concurrent requests."""

    code = "busy"
    status = 503
    help = "Try again in a moment."

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"the agent already has {limit} {what} under way.")


class NoThread(Unreachable):
    """A process may have no more threads, or has no memory for one: the asked one, or who asks.

    Args:
        is_here: Whether it is who asks.
    """

    code = "no_thread"
    status = 503
    help = (
        "Its limits on processes and memory (`ulimit -u`, `ulimit -v`, pids.max of its cgroup) say"
        " how many it may have. What needs no thread still works: `query`, `status`, `backtrace`."
    )

    def __init__(self, why: str, *, is_here: bool = False) -> None:
        if is_here:
            limits, _, _ = self.help.partition(" What needs")
            super().__init__(f"probing itself could not start a thread ({why}).", help=limits)
            return
        super().__init__(f"the process could not start a thread for it ({why}).")


class TooManyRequests(Unreachable):
    """One sender asks more often than it may."""

    code = "too_many_requests"
    status = 429
    help = "Ask less often, or raise the limit with PROBING_MAX_REQUESTS_PER_S."

    def __init__(self, per_s: float) -> None:
        super().__init__(f"more than {per_s:g} requests a second came from one sender.")


class BadToken(Refused):
    """A TCP request without the right token."""

    code = "bad_token"
    status = 401
    help = (
        "Put the token in PROBING_TOKEN or name its file with --token-file; the process keeps it in"
        " the file `token` of its run folder, a node server in `node.token` of the run directory."
    )

    def __init__(self, *, missing: bool) -> None:
        super().__init__(f"the token is {'missing' if missing else 'wrong'}.")


class ReadOnlyToken(Refused):
    """A token that may only read was sent with a request that does more."""

    code = "read_only_token"
    help = (
        "It needs the token that may do everything, in the file `token` of the process's run folder"
        " (of a node server: `node.token` in the run directory)."
    )

    def __init__(self, route: str) -> None:
        super().__init__(f"this token may only read, and `{route}` does more than that.")


class EvalNotAllowed(Refused):
    """Code was sent over TCP to a server that runs none from there."""

    code = "eval_not_allowed"
    help = (
        "Run the command on the process's own machine, `ssh HOST probing PID eval ...`, or start"
        " what listens there with --allow-eval, or PROBING_ALLOW_EVAL=1."
    )

    def __init__(self) -> None:
        super().__init__("code that comes over TCP is not run here.")


class WritingNotAllowed(Refused):
    """A request over TCP names the file to write, and the server writes none from there."""

    code = "writing_not_allowed"
    help = (
        "Run the command on the process's own machine, `ssh HOST probing PID act checkpoint ...`,"
        " or start what listens there with --allow-eval, or PROBING_ALLOW_EVAL=1: who may name the"
        " files that the process writes could as well run code in it."
    )

    def __init__(self) -> None:
        super().__init__("no file is written here at a place that was named over TCP.")


class BadHost(Refused):
    """A request by a name that is none of the server's, as a web page may send it."""

    code = "bad_host"
    status = 421
    help = (
        "Ask at the address the server listens on, or name the other one where it is started:"
        " PROBING_HOSTS=host:port."
    )

    def __init__(self, host: str) -> None:
        super().__init__(f"requests for the host {host[:80]!r} are not served.")


class BadOrigin(Refused):
    """A request that a web page has sent."""

    code = "bad_origin"
    help = "Ask from a program, not from a page in a browser."

    def __init__(self, origin: str) -> None:
        super().__init__(f"requests of web pages, as of {origin[:80]!r}, are not served.")


class Vetoed(Refused):
    """An audit hook of the process forbids it.

    Attributes:
        why: What the hook has raised.
    """

    code = "vetoed"
    help = "Whoever has given that hook to sys.addaudithook decides what may be done there."

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"an audit hook of the process forbids it ({why}).")


class PageMissing(UsageError):
    """The page of `probing web` is no part of this installation."""

    code = "page_missing"
    help = (
        "Install probing again where npm's registry can be reached: the page is built out of"
        " packages of it, `pip install --force-reinstall --no-deps .`; a wheel that was built"
        " elsewhere brings it. `probing top` shows the same in the terminal."
    )

    def __init__(self, why: str) -> None:
        super().__init__(f"there is no page: {why.rstrip('.')}.")
