"""Runs a node server: ``python -m probing.cluster.node``.

Rules of this file: the process of its own that the package speaks of. Started by hand it says
where it listens and stays in the terminal; started by an agent (``--detach``) it leaves the agent's
process behind at once, says nothing, and ends when those it serves have been gone for a while.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ...errors import BadSetting, ProbingError, Unreachable, UsageError
from ...linux import process
from ...rundir.folders import RunDirectory, from_env
from ...rundir.node_card import (
    NodeCard,
    log_path,
    read_node,
    read_token,
    read_token_path,
    token_path,
)
from ...server.command import complain, end_by_signals, listening_at, node_tokens
from ...settings import Settings, find
from .beside import LAST_S, Beside
from .metrics import LIBRARY, is_installed

_CONNECTIONS = 1024
_REQUESTS = 256
_REQUESTS_PER_S = 2_000.0
"""Many clients, of which several may have one address, ask one node server about many ranks."""
_SPARE_S, _TRY_S = 5.0, 0.5


def main(argv: Sequence[str]) -> int:
    """Serve until stopped; returns the exit code."""
    signal.pthread_sigmask(
        signal.SIG_SETMASK, ()
    )  # an agent's thread, which blocks all, started it
    options = _parser().parse_args(argv)
    if options.detach:
        _start_behind(argv)
        return 0
    try:
        _serve(options)
    except (ProbingError, OSError) as error:
        code = error.exit_code if isinstance(error, ProbingError) else Unreachable.exit_code
        return complain(f"{error}", getattr(error, "help", ""), code)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="probing serve", allow_abbrev=False)
    parser.add_argument("--listen")
    parser.add_argument("--token-file")
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--allow-eval", action="store_true")
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--until-idle", action="store_true")
    return parser


def _start_behind(argv: Sequence[str]) -> None:
    """Start the same again, in a session of its own, and leave it to itself."""
    directory = from_env()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.open(log_path(directory), flags, 0o600)
    try:
        subprocess.Popen(
            [sys.executable, "-m", "probing.cluster.node", *(a for a in argv if a != "--detach")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            close_fds=True,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(log)


def _serve(options: argparse.Namespace) -> None:
    """Take the place of the node server, and serve.

    Raises:
        ProbingError: Another one runs, or the address may not be listened on.
        OSError: It cannot be.
    """
    from .otel.wanted import wanted_in
    from .server import NodeServer

    settings = _settings(options)
    directory = from_env()
    if _place(directory, LAST_S + _SPARE_S) is None:
        if options.until_idle:  # another agent was quicker
            return
        raise _runs_already(directory, options, settings)
    beside = Beside(settings, directory, _say)
    server = NodeServer(settings, directory, node_tokens(settings, directory), _say)
    if settings.otel:
        server.send(wanted_in(os.environ))
    end_by_signals(server.stop)
    idle_s = settings.node_idle_s if options.until_idle else None

    def told(address: str) -> None:
        _tell(address, directory)
        beside.start()

    try:
        server.run(told=told, idle_s=idle_s)
    except OSError as error:
        if not options.until_idle:
            raise OSError(
                f"cannot listen on {settings.listen}: {error.strerror or error}."
            ) from None
        # Another run directory's node server, or anything else, has the usual port.
        host = settings.listen.rpartition(":")[0]
        server.settings = dataclasses.replace(settings, listen=f"{host}:0")
        server.run(told=told, idle_s=idle_s)
    finally:
        beside.end()


def _place(directory: RunDirectory, patience_s: float) -> int | None:
    """The place of the node server; None where another one serves.

    One that serves no more, and has not ended yet, is waited for: no agent starts another one.
    """
    from .server import take_place

    end = time.monotonic() + patience_s
    while (place := take_place(directory)) is None:
        if read_node(directory) is not None or time.monotonic() > end:
            break
        time.sleep(_TRY_S)
    return place


def _settings(options: argparse.Namespace) -> Settings:
    """The settings of the environment and the options together."""
    found = Settings.from_env(os.environ)
    listen = options.listen or found.node_listen
    found = listening_at(found, listen, options.tls_cert or "", options.tls_key or "")
    token = found.token
    if options.token_file:
        try:
            token = Path(options.token_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise UsageError(
                f"cannot read the token file {options.token_file}: {reason}."
            ) from None
        if not token:
            raise UsageError(f"the token file {options.token_file} is empty.")
    return dataclasses.replace(
        found,
        token=token,
        allow_eval=options.allow_eval or found.allow_eval,
        max_connections=max(found.max_connections, _CONNECTIONS),
        max_requests=max(found.max_requests, _REQUESTS),
        max_requests_per_s=max(found.max_requests_per_s, _REQUESTS_PER_S),
    )


def _runs_already(
    directory: RunDirectory, options: argparse.Namespace, wanted: Settings
) -> UsageError:
    """The error for a second node server, with what the first one has not of what is given.

    Raises:
        BadSetting: The certificate that is given cannot be read.
    """
    card = read_node(directory)
    text = f"a node server of {directory.path} runs already"
    if card is None:
        return UsageError(f"{text}.", help="Use it.")
    text += f" (process {card.pid}, at {card.listen})."
    lacking = _lacking(card, directory, options, wanted)
    if not lacking:
        return UsageError(text, help=f"Use it, or end it first: kill {card.pid}.")
    return UsageError(
        f"{text} It has not what is given here: {', '.join(lacking)}.",
        help=f"End it first, kill {card.pid}, or use it as it is.",
    )


def _lacking(
    card: NodeCard, directory: RunDirectory, options: argparse.Namespace, wanted: Settings
) -> list[str]:
    """What is given, by option or variable, and is not so with the node server that runs."""
    from ...server.certificate import load_certificate  # brings `ssl`

    found = []
    if _is_given(options.listen, "node_listen") and not _is_at(card.listen, wanted.listen):
        found.append(_given("listen", options.listen, "node_listen", wanted.listen))
    if wanted.token and wanted.token != read_token(token_path(directory)):
        found.append(_given("token-file", options.token_file, "token"))
    if wanted.read_token and wanted.read_token != read_token(read_token_path(directory)):
        found.append(find("read_token").env)
    if wanted.tls_cert and load_certificate(wanted).fingerprint != card.fingerprint:
        found.append(_given("tls-cert", options.tls_cert, "tls_cert", wanted.tls_cert))
    its = _settings_of(card.pid)
    if its is None:  # nobody tells
        return found
    if wanted.allow_eval and not its.allow_eval:
        found.append(_given("allow-eval", options.allow_eval or None, "allow_eval"))
    for name in ("otel", "watch", "history"):
        value = getattr(wanted, name)
        if value and value != getattr(its, name):
            found.append(find(name).env)  # an address may be a secret
    return found


def _settings_of(pid: int) -> Settings | None:
    """The settings of a node server that runs, but for its address; None where nobody tells."""
    env = process.environment(pid)
    try:
        its = Settings.from_env(env)
    except BadSetting:  # another version can take it
        return None
    may_eval = its.allow_eval or "--allow-eval" in process.command(pid)
    return dataclasses.replace(its, allow_eval=may_eval) if env else None


def _is_given(option: str | None, setting: str) -> bool:
    """Whether something was asked for, by an option or its variable."""
    return bool(option or os.environ.get(find(setting).env))


def _given(option: str, given: object, setting: str, value: str = "") -> str:
    """How something was asked for: by an option, where one is given, else by its variable."""
    if given is not None:
        return f"--{option} {value}".rstrip()
    return find(setting).env + (f"={value}" if value else "")


def _is_at(address: str, wanted: str) -> bool:
    """Whether a server listens where it is wanted; port 0 is any."""
    here, there = (word.removeprefix("https://").rpartition(":") for word in (address, wanted))
    return here[0] == there[0] and there[2] in ("0", here[2])


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError):  # its log is on a disk that is full
        print(sentence, file=sys.stderr, flush=True)  # noqa: T201


def _tell(address: str, directory: RunDirectory) -> None:
    card = read_node(directory)
    shown = f"; its certificate is sha256:{card.fingerprint}" if card and card.fingerprint else ""
    print(f"listening on {address}; the token is in {token_path(directory)}{shown}", flush=True)  # noqa: T201
    if not is_installed():
        _say(f"/metrics needs `pip install '{LIBRARY}'`, and answers 501 until then.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
