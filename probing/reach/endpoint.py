"""What the user calls a process, and which process that is.

Rules of this file: the one place where an endpoint is resolved. It looks into the run directory
and /proc and asks nobody. An endpoint that fits several processes is refused, never guessed.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ..errors import BadEndpoint, NoSuchFolder, NoSuchProcess, NotPython
from ..linux import process
from ..messages import rank_paths
from ..messages.card import Card
from ..messages.frozen import dataclass
from ..rundir.contained import called_so_inside
from ..rundir.folders import (
    ProcessFolder,
    RunDirectory,
    environment_directories,
    folder_at,
    in_use,
)
from ..rundir.node_card import read_node, read_token, token_path
from ..rundir.pruning import given_up
from .address import Address
from .starters import is_starter
from .trust import Trust

_TLS = "https://"
_ALL_OF_THEM = "`probing.connect_many(['all'])` has all of them, and so has `probing -t all`."
_HOST = re.compile(
    r"localhost|\d{1,3}(\.\d{1,3}){3}|[A-Za-z][\w-]*(\.[A-Za-z][\w-]*)*\.[a-z]{2,}(?<!\.py)"
)
"""What is more likely a machine than a program."""
_MOST_WAYS = 4
_MOST_DIGITS = 18
"""Python refuses to read a number of some thousands."""
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


class _Given(NamedTuple):
    """What is sent over TCP and to whom, as far as it was said."""

    token: str | None
    trust: Trust
    is_told: bool


def resolve(
    endpoint: str | int,
    directory: RunDirectory,
    *,
    token: str | None = None,
    trust: Trust | None = None,
    is_told: bool = False,
) -> Place:
    """Find the process that an endpoint means.

    Args:
        token: For TCP; without one, that of a local process which listens there is taken.
        trust: Whose certificates are believed; without, as the environment says. That of a local
            process is known here.
        is_told: Whether others named it, and not the user.

    Raises:
        BadEndpoint: It is none of the forms, or fits several processes.
        NoSuchProcess: Nothing matches.
        NotPython: Of that pid; in a container it is another's that has an agent.
        Unproven: Others named it, and nothing will prove who is there.
    """
    text = str(endpoint).strip()
    given = _Given(
        token=token or os.environ.get("PROBING_TOKEN"),
        trust=Trust.from_env(os.environ) if trust is None else trust,
        is_told=is_told,
    )
    if text.isdecimal() and len(text) <= _MOST_DIGITS:
        return _by_pid(int(text), directory)
    if text.startswith(("http://", "https://")):
        return _by_url(text, directory, given)
    if rank_paths.job_and_ranks(text) is not None:
        return _by_rank(text, directory)
    if "/" in text:
        return _by_path(text)
    match = _HOST_PORT.fullmatch(text)
    if match:
        return _address(match[1].strip("[]"), int(match[2]), directory, given, tls=None)
    return _by_name(text, directory)


def _by_pid(pid: int, directory: RunDirectory) -> Place:
    """The live process of that pid, else the newest record of an ended one."""
    started = process.start_time(pid)
    if started is None:
        folders = [folder for folder in directory.folders() if folder.pid == pid]
        if not folders:
            gone = next((one for one in given_up(directory) if one.pid == pid), None)
            why = "" if gone is None else str(gone)
            raise NoSuchProcess(str(pid), why, help=_in_containers(pid, directory))
        return Local(folder=folders[0])
    # It may have been started with a run directory of its own, or belong to another user.
    found = []
    for place in dict.fromkeys((*directory.each(), *environment_directories(pid))):
        folder = place.folder_for(pid, started)
        # Its card may be damaged: an agent that answers is there all the same.
        is_there = folder.read_card() is not None or folder.is_listened_to()
        if is_there and folder.is_of(process.owner(pid)):
            found.append(folder)
    its = in_use(found)
    if its is not None:
        return Local(folder=its)
    known = None if process.is_python(pid) else _in_containers(pid, directory)
    if known is not None:
        raise NotPython(pid, help=known)
    return Stranger(pid=pid)


def _in_containers(number: int, directory: RunDirectory) -> str | None:
    """How processes that are called so in their containers are asked from here."""
    told, pids = [], called_so_inside(number, directory)
    if pids:
        its = f"A process that its container calls {number} is asked from here by its pid here"
        told.append(f"{its}: {_ways(pids)}.")
    ended = [one.path for one in directory.folders() if one.pid == number and not one.is_alive()]
    if ended:
        its = f"The record of a process that was called {number} is asked by its folder"
        told.append(f"{its}: {_ways(ended)}.")
    return " ".join(told) or None


def _ways(endpoints: Sequence[int | Path]) -> str:
    """What to type for one of some processes."""
    return " or ".join(f"`probing {endpoint} ...`" for endpoint in endpoints[:_MOST_WAYS])


def _by_url(url: str, directory: RunDirectory, given: _Given) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadEndpoint(url, str(error)) from None
    key = rank_paths.key_in(parts.path)
    if not host or (parts.path not in ("", "/") and not key) or parts.username or parts.query:
        raise BadEndpoint(url, "a URL must be http(s)://host:port and nothing more")
    tls = parts.scheme == "https"
    address = _address(host, port or (443 if tls else 80), directory, given, tls=tls)
    return dataclasses.replace(address, key=key)


def _address(
    host: str, port: int, directory: RunDirectory, given: _Given, *, tls: bool | None
) -> Address:
    """Host and port, with what is known here of who listens there.

    Args:
        tls: Whether it is encrypted; None where that was not said: as the local process there does
            it, else if anything was said of certificates.
    """
    if not 0 < port < 65536:
        raise BadEndpoint(f"{host}:{port}", "a port is between 1 and 65535")
    known = _local_listener(host, port, directory)
    if tls is None:
        tls = known.listen.startswith(_TLS) if known else given.trust.names_servers
    trust = given.trust
    if known is None and given.is_told:
        trust.check_told(f"{host}:{port}", tls=tls)
    elif known is not None and not known.listen.startswith(_TLS):
        trust = Trust(plaintext=True)  # or it would not listen so
    elif known is not None and known.fingerprint is not None:
        trust = Trust(fingerprints=(known.fingerprint,))
    token = given.token or (known.token if known else None)
    return Address(host=host, port=port, tls=tls, token=token, trust=trust)


class _Listener(NamedTuple):
    """What a live process of this user says of its TCP listener."""

    listen: str
    fingerprint: str | None
    token: str | None


def _local_listener(host: str, port: int, directory: RunDirectory) -> _Listener | None:
    """The live process of this user that listens at an address."""
    shown = f"[{host}]" if ":" in host else host
    hosts = {shown, "127.0.0.1"} if host == "localhost" else {shown}
    if hosts & {"127.0.0.1", "[::1]"}:
        hosts |= {"0.0.0.0", "[::]"}  # noqa: S104 - who listens everywhere listens there, too
    names = {f"{scheme}{name}:{port}" for name in hosts for scheme in ("", _TLS)}
    for place in directory.each():
        node = read_node(place)
        if node is not None and node.listen in names:
            return _Listener(node.listen, node.fingerprint, read_token(token_path(place)))
    for folder, card in _alive(directory):
        if card.listen in names:
            return _Listener(card.listen or "", card.fingerprint, read_token(folder.token))
    return None


def _by_rank(text: str, directory: RunDirectory) -> Local:
    """The one live process of that rank, else the record of the one that started last."""
    job, number = rank_paths.job_and_ranks(text) or (None, "")
    if not number.isdecimal() or len(number) > _MOST_DIGITS:
        raise BadEndpoint(text, "the rank must be a number, as in rank:0")
    rank = int(number)
    cards = [card for _, card in _alive(directory)]

    def is_it(card: Card) -> bool:
        return card.rank == rank and job in (None, card.job) and not is_starter(card, cards)

    try:
        return _the_one(text, directory, is_it)
    except NoSuchProcess:
        ended = _last_ended(directory, is_it)
    if ended is None:
        of = f" of job {job}" if job else ""
        raise NoSuchProcess(f"of rank {rank}{of} on this machine")
    return ended


def _last_ended(directory: RunDirectory, matches: Callable[[Card], bool]) -> Local | None:
    """Of the ended processes that match, the one that started last."""
    found = [
        (card.started_ns, folder)
        for folder in directory.folders()
        if (card := folder.read_card()) is not None
        and matches(card)
        and not (folder.is_alive() or folder.may_run_elsewhere())
    ]
    last = max(found, key=lambda pair: pair[0], default=None)
    return Local(folder=last[1]) if last is not None else None


def _by_path(text: str) -> Place:
    path = Path(text)
    try:
        for candidate in (path, path.parent):
            folder = folder_at(candidate)
            if folder is not None:
                return Local(folder=folder)
        if path.is_socket():
            return Address(path=path)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    raise NoSuchFolder(text)


def _by_name(text: str, directory: RunDirectory) -> Local:
    """The one live process that runs a script, module or executable of that name."""
    try:
        return _the_one(text, directory, lambda card: text in _names_of(card))
    except NoSuchProcess:
        if not _HOST.fullmatch(text):
            raise
        why = f"a host needs its port, as in {text}:9741, and no process is called so"
        raise BadEndpoint(text, why) from None


def _names_of(card: Card) -> set[str]:
    """The words of a command line that a user may call it by."""
    words = [os.path.basename(word) for word in card.command if not word.startswith("-")]
    return {*words, *(word.removesuffix(".py") for word in words)}


def _the_one(text: str, directory: RunDirectory, matches: Callable[[Card], bool]) -> Local:
    """The only live process that matches."""
    found = [folder for folder, card in _alive(directory) if matches(card)]
    if not found:
        raise NoSuchProcess(f"called {text!r}", help=_ALL_OF_THEM if text == "all" else None)
    if len(found) > 1:
        pids = ", ".join(str(folder.pid) for folder in found)
        job = f", or as job:NAME/{text}" if text.startswith("rank:") else ""
        raise BadEndpoint(text, f"it fits several processes ({pids}); name one by its pid{job}")
    return Local(folder=found[0])


def _alive(directory: RunDirectory) -> list[tuple[ProcessFolder, Card]]:
    cards = ((folder, folder.read_card()) for folder in directory.folders() if folder.is_alive())
    return [(folder, card) for folder, card in cards if card is not None]
