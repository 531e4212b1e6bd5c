"""What the user calls a process, and which process that is.

Rules of this file: the one place where an endpoint is resolved. It looks into the run directory
and /proc and asks nobody. An endpoint that fits several processes is refused, never guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from . import process
from .card import Card
from .errors import BadEndpoint, NoSuchProcess
from .rundir import ProcessFolder, RunDirectory, environment_directory, folder_at
from .transport import Address

_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A process of this machine with a run folder, alive or ended."""

    folder: ProcessFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A process of this machine that has no agent, or none that has begun."""

    pid: int


Place = Local | Stranger | Address


def resolve(endpoint: str | int, directory: RunDirectory, *, token: str | None = None) -> Place:
    """Find the process that an endpoint means.

    Args:
        token: For TCP; without one, that of a local process which listens there is taken.

    Raises:
        BadEndpoint: It is none of the forms, or fits several processes.
        NoSuchProcess: Nothing matches.
    """
    text = str(endpoint).strip()
    if text.isdecimal():
        return _by_pid(int(text), directory)
    if text.startswith(("http://", "https://")):
        return _by_url(text, directory, token)
    if text.startswith("rank:"):
        return _by_rank(text, directory)
    if "/" in text:
        return _by_path(text)
    match = _HOST_PORT.fullmatch(text)
    if match:
        return _address(match[1].strip("[]"), int(match[2]), directory, token, tls=False)
    return _by_name(text, directory)


def _by_pid(pid: int, directory: RunDirectory) -> Place:
    """The live process of that pid, else the newest record of an ended one."""
    started = process.start_time(pid)
    folders = [folder for folder in directory.folders() if folder.pid == pid]
    if started is None:
        if not folders:
            raise NoSuchProcess(str(pid))
        return Local(folder=folders[0])
    # It may have been started with a run directory of its own, or belong to another user.
    for folder in (*folders, *environment_directory(pid).folders()):
        if (folder.pid, folder.start_time) == (pid, started) and folder.read_card() is not None:
            return Local(folder=folder)
    return Stranger(pid=pid)


def _by_url(url: str, directory: RunDirectory, token: str | None) -> Address:
    """An http(s) URL of host and port."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadEndpoint(url, str(error)) from None
    if not host or parts.path not in ("", "/") or parts.username or parts.query:
        raise BadEndpoint(url, "a URL must be http(s)://host:port and nothing more")
    tls = parts.scheme == "https"
    return _address(host, port or (443 if tls else 80), directory, token, tls=tls)


def _address(
    host: str, port: int, directory: RunDirectory, token: str | None, *, tls: bool
) -> Address:
    """Host and port, with the token they need where it is known here."""
    if not 0 < port < 65536:
        raise BadEndpoint(f"{host}:{port}", "a port is between 1 and 65535")
    address = Address(host=host, port=port, tls=tls)
    known = token or os.environ.get("PROBING_TOKEN") or _local_token(str(address), directory)
    return Address(host=host, port=port, tls=tls, token=known)


def _local_token(address: str, directory: RunDirectory) -> str | None:
    """The token of a live process of this user that listens at an address."""
    names = {address, address.replace("localhost:", "127.0.0.1:")}
    for folder, card in _alive(directory):
        if card.listen in names:
            try:
                return folder.token.read_text("ascii").strip()
            except OSError:
                return None
    return None


def _by_rank(text: str, directory: RunDirectory) -> Local:
    """The one live process of that rank."""
    number = text.removeprefix("rank:")
    if not number.isdecimal():
        raise BadEndpoint(text, "the rank must be a number, as in rank:0")
    return _the_one(text, directory, lambda card: card.rank == int(number))


def _by_path(text: str) -> Place:
    """A run folder, or a socket."""
    path = Path(text)
    for candidate in (path, path.parent):
        folder = folder_at(candidate)
        if folder is not None:
            return Local(folder=folder)
    if path.is_socket():
        return Address(path=path)
    raise BadEndpoint(text, "there is no run folder and no socket")


def _by_name(text: str, directory: RunDirectory) -> Local:
    """The one live process that runs a script, module or executable of that name."""
    return _the_one(text, directory, lambda card: text in _names_of(card))


def _names_of(card: Card) -> set[str]:
    """The words of a command line that a user may call it by."""
    words = [os.path.basename(word) for word in card.command if not word.startswith("-")]
    return {*words, *(word.removesuffix(".py") for word in words)}


def _the_one(text: str, directory: RunDirectory, matches: Callable[[Card], bool]) -> Local:
    """The only live process that matches."""
    found = [folder for folder, card in _alive(directory) if matches(card)]
    if not found:
        raise NoSuchProcess(f"called {text!r}")
    if len(found) > 1:
        pids = ", ".join(str(folder.pid) for folder in found)
        raise BadEndpoint(text, f"it fits several processes ({pids}); name one by its pid")
    return Local(folder=found[0])


def _alive(directory: RunDirectory) -> list[tuple[ProcessFolder, Card]]:
    """The live processes with their cards."""
    cards = ((folder, folder.read_card()) for folder in directory.folders() if folder.is_alive())
    return [(folder, card) for folder, card in cards if card is not None]
