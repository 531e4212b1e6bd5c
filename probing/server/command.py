"""What commands that serve have alike: what they are given, how they end, and what goes wrong.

Rules of this file: for processes of their own, never for one that trains.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable

from ..errors import UsageError
from ..rundir.folders import RunDirectory
from ..rundir.node_card import read_token, read_token_path, token_path
from ..settings import Settings
from .access.tokens import Tokens, tokens_for


def listening_at(found: Settings, listen: str, tls_cert: str, tls_key: str) -> Settings:
    """The settings with an address, and the certificate that options give, if they do.

    Raises:
        UsageError: The address is none.
    """
    if not listen.rpartition(":")[2].isdecimal():
        raise UsageError(f"--listen {listen} is not host:port.")
    return dataclasses.replace(
        found,
        listen=listen,
        tls_cert=tls_cert or found.tls_cert,
        tls_key=tls_key or ("" if tls_cert else found.tls_key),
    )


def node_tokens(settings: Settings, directory: RunDirectory) -> Tokens:
    """The tokens as given, else those this machine's node server had before, else new ones.

    Raises:
        BadSetting: They are the same.
    """
    paths = token_path(directory), read_token_path(directory)
    return tokens_for(settings, Tokens(*(read_token(path) or "" for path in paths)))


def end_by_signals(stop: Callable[[], None]) -> None:
    """Have the signals that end a process call this; under `nohup`, the terminal's end does not."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, lambda *_: stop())


def complain(what: str, help_: str, code: int) -> int:
    """Tell an error, and what to do, on stderr; returns the exit code."""
    print(f"error: {what}" + (f"\n{help_}" if help_ else ""), file=sys.stderr)  # noqa: T201
    return code
