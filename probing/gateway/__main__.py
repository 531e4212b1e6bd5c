"""Runs the gateway: ``python -m probing.gateway``; `probing gateway` becomes this.

Rules of this file: its address goes to stdout, as that of a node server. Ctrl-C ends it without a
word.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MissingLibrary, ProbingError, Unreachable
from ..history.stores.address import check_place
from ..rundir.folders import RunDirectory, from_env, write_private
from ..rundir.node_card import read_token, read_token_path, token_path
from ..server.access.tokens import Tokens
from ..server.command import complain, end_by_signals, listening_at, node_tokens
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
        return complain(f"{error}", error.help, error.exit_code)
    except OSError as error:
        what = f"cannot listen on {options.listen}: {error.strerror or error}."
        return complain(what, "Port 0 takes a free one.", Unreachable.exit_code)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="probing gateway", allow_abbrev=False)
    parser.add_argument("--listen", default="127.0.0.1:9742")
    parser.add_argument("--history", default="")
    parser.add_argument("--tls-cert", default="")
    parser.add_argument("--tls-key", default="")
    parser.add_argument("--token-in", default="")
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
    found = Settings.from_env(os.environ)
    place = _place(options, found)
    settings = listening_at(found, options.listen, options.tls_cert, options.tls_key)
    _check_libraries()
    directory = from_env()
    tokens = _tokens(settings, directory)
    # It says who may listen where, and that the address is free, which gRPC does not ask.
    listener = bind_tcp(settings, 0)
    server = _start(listener, settings, place, tokens, options.timeout)
    is_over = threading.Event()
    end_by_signals(is_over.set)
    _tell(listener, _token_place(options, settings, directory))
    is_over.wait()
    server.close()


def _place(options: argparse.Namespace, settings: Settings) -> Place:
    """What is served; a history that a setting names beside processes may be made later.

    Raises:
        ProbingError: There is no such history.
    """
    place = Place(endpoints=tuple(options.endpoints), history=options.history)
    if place.history:
        check_place(place.history)
    if place.history and not (place.endpoints and place.history == settings.history):
        from ..history.query import source_of

        source_of(place.history)
    return place


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


def _tokens(settings: Settings, directory: RunDirectory) -> Tokens:
    """Those that are given, else those of this machine's node server, kept where it keeps them."""
    tokens = node_tokens(settings, directory)
    directory.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.verify()
    paths = token_path(directory), read_token_path(directory)
    given = settings.token, settings.read_token
    for path, token, is_given in zip(paths, tokens, given, strict=True):
        if not (is_given or read_token(path)):
            write_private(path, token.encode())
    return tokens


def _start(
    listener: TcpListener, settings: Settings, place: Place, tokens: Tokens, timeout_s: float
) -> Gateway:
    """Have gRPC listen where it may."""
    from .server import Gateway

    listener.server.close()
    certificate = None
    if listener.certificate is not None:
        key = settings.tls_key or settings.tls_cert
        certificate = (Path(settings.tls_cert).read_text("utf-8"), Path(key).read_text("utf-8"))
    served = _Served(settings, tokens.full, tokens.read, None)
    return Gateway(_location(listener), served, place, timeout_s=timeout_s, certificate=certificate)


def _location(listener: TcpListener) -> str:
    """Where it listens, as gRPC has it."""
    scheme = "grpc" if listener.certificate is None else "grpc+tls"
    return f"{scheme}://{listener.address.removeprefix('https://')}"


def _token_place(options: argparse.Namespace, settings: Settings, directory: RunDirectory) -> str:
    """Where the token is: in a file, unless a variable has it alone."""
    alone = "PROBING_TOKEN" if settings.token else ""
    return options.token_in or alone or f"{token_path(directory)}"


def _tell(listener: TcpListener, where: str) -> None:
    """Say where it listens, and where the token is."""
    certificate = listener.certificate
    shown = f"; its certificate is sha256:{certificate.fingerprint}" if certificate else ""
    print(f"listening on {_location(listener)}; the token is in {where}{shown}", flush=True)  # noqa: T201


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)  # gRPC would wait for who is connected
