"""Runs the gateway: ``python -m probing.gateway``; `probing gateway` becomes this.

Rules of this file: its address goes to stdout, as that of a node server. Ctrl-C ends it without a
word.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MissingLibrary, ProbingError, Unreachable, UsageError
from ..rundir.folders import RunDirectory, from_env, write_private
from ..rundir.node_card import read_token, read_token_path, token_path
from ..server.access.tokens import Tokens, tokens_for
from ..server.sockets import TcpListener, bind_tcp
from ..settings import Settings
from .asked import Place

if TYPE_CHECKING:
    from .server import Gateway


def main(argv: Sequence[str]) -> int:
    """Serve until stopped; returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        _serve(options)
    except ProbingError as error:
        return _complain(f"{error}", error.help, error.exit_code)
    except OSError as error:
        what = f"cannot listen on {options.listen}: {error.strerror or error}."
        return _complain(what, "Port 0 takes a free one.", Unreachable.exit_code)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="probing gateway", allow_abbrev=False)
    parser.add_argument("--listen", default="127.0.0.1:9742")
    parser.add_argument("--history", default="")
    parser.add_argument("--tls-cert", default="")
    parser.add_argument("--tls-key", default="")
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("endpoints", nargs="*")
    return parser


@dataclasses.dataclass
class _Served:
    """What calls are checked against; see `server.access.auth.Listening`."""

    settings: Settings
    token: str
    read_token: str
    listen: str | None


def _serve(options: argparse.Namespace) -> None:
    """Listen, and wait for the end.

    Raises:
        ProbingError: What is asked for cannot be.
        OSError: The address cannot be bound.
    """
    place = Place(endpoints=tuple(options.endpoints), history=options.history)
    if place.history:
        from ..history.query import source_of

        source_of(place.history)
    settings = _settings(options)
    _check_libraries()
    directory = from_env()
    tokens = _tokens(settings, directory)
    # It says who may listen where, and that the address is free, which gRPC does not ask.
    listener = bind_tcp(settings, 0)
    server = _start(listener, settings, place, tokens, options.timeout)
    is_over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: is_over.set())
    _tell(listener, server.port, settings, directory)
    is_over.wait()
    server.close()


def _check_libraries() -> None:
    """See that what it is made of is there.

    Raises:
        MissingLibrary: It is not.
    """
    try:
        import google.protobuf  # noqa: F401
        import pyarrow.flight  # noqa: F401
    except ModuleNotFoundError:
        raise MissingLibrary("probing-agent[flight]") from None


def _settings(options: argparse.Namespace) -> Settings:
    """The settings of the environment and the options together."""
    found = Settings.from_env(os.environ)
    if not options.listen.rpartition(":")[2].isdecimal():
        raise UsageError(f"--listen {options.listen} is not host:port.")
    return dataclasses.replace(
        found,
        listen=options.listen,
        tls_cert=options.tls_cert or found.tls_cert,
        tls_key=options.tls_key or ("" if options.tls_cert else found.tls_key),
    )


def _tokens(settings: Settings, directory: RunDirectory) -> Tokens:
    """Those that are given, else those of this machine's node server, kept where it keeps them."""
    paths = token_path(directory), read_token_path(directory)
    before = Tokens(*(read_token(path) or "" for path in paths))
    tokens = tokens_for(settings, before)
    directory.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.verify()
    given = settings.token, settings.read_token
    for path, known, token, is_given in zip(paths, before, tokens, given, strict=True):
        if not (known or is_given):
            write_private(path, token.encode())
    return tokens


def _start(
    listener: TcpListener, settings: Settings, place: Place, tokens: Tokens, timeout_s: float
) -> Gateway:
    """Have gRPC listen where it may."""
    from .server import Gateway

    host = listener.address.removeprefix("https://").rpartition(":")[0]
    port = int(listener.address.rpartition(":")[2])
    listener.server.close()
    certificate = None
    if listener.certificate is not None:
        key = settings.tls_key or settings.tls_cert
        certificate = (Path(settings.tls_cert).read_text("utf-8"), Path(key).read_text("utf-8"))
    scheme = "grpc+tls" if certificate else "grpc"
    served = _Served(settings, tokens.full, tokens.read, None)
    return Gateway(
        f"{scheme}://{host}:{port}", served, place, timeout_s=timeout_s, certificate=certificate
    )


def _tell(listener: TcpListener, port: int, settings: Settings, directory: RunDirectory) -> None:
    """Say where it listens, and where the token is."""
    host = listener.address.removeprefix("https://").rpartition(":")[0]
    scheme, shown = "grpc", ""
    if listener.certificate is not None:
        scheme, shown = (
            "grpc+tls",
            f"; its certificate is sha256:{listener.certificate.fingerprint}",
        )
    where = "PROBING_TOKEN" if settings.token else token_path(directory)
    print(f"listening on {scheme}://{host}:{port}; the token is in {where}{shown}", flush=True)  # noqa: T201


def _complain(what: str, help_: str, code: int) -> int:
    print(f"error: {what}" + (f"\n{help_}" if help_ else ""), file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)  # gRPC would wait for who is connected
