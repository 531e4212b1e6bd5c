"""Whether a process can run Python code now."""

from __future__ import annotations

from ..errors import NotAnswering, NotProbed, NotProbing, ProbingError
from ..linux import process
from ..messages.card import FAILED_START, TAKEN_OUT
from ..messages.limits import ready_s
from ..rundir.folders import ProcessFolder
from . import ladder
from .address import Address
from .transport import ask

LEFT = "its agent was detached meanwhile"
_MOST_BYTES = 65_536


def ping(folder: ProcessFolder, *, timeout_s: float) -> None:
    """Return when the process has shown that it can run Python code.

    Args:
        timeout_s: How long that may take; less of a process that a signal has stopped, which waits
            for no turn on a busy machine.

    Raises:
        NotProbed: It has no agent, or its agent could not start.
        NotAnswering: It did not answer in time; the sentence says why where that is known.
    """
    if process.state(folder.pid) == "T":
        timeout_s = min(timeout_s, ready_s(load=0.0))
    try:
        ask(Address(path=folder.socket), "ping", timeout_s=timeout_s, most_bytes=_MOST_BYTES)
    except NotProbing:
        card = folder.read_card()
        problems = card.problems if card else ()
        failed = (one.rstrip(".") for one in problems if one.startswith(FAILED_START))
        raise NotProbed(folder.pid, next(failed, "its agent has stopped")) from None
    except NotAnswering:
        why = ladder.why_silent(folder)
        raise NotAnswering(f"process {folder.pid}", timeout_s, why) from None


def has_left(folder: ProcessFolder) -> bool:
    """Whether the agent of a live process has been taken out of it, or is about to be gone."""
    card = folder.read_card()
    if card is None:
        return not folder.path.is_dir()
    return TAKEN_OUT in card.problems


def is_there(address: Address, *, timeout_s: float) -> bool:
    """Whether anything listens at an address.

    Args:
        timeout_s: How long an answer is waited for.
    """
    try:
        ask(address, "ping", timeout_s=timeout_s, most_bytes=_MOST_BYTES)
    except NotProbing:
        return False
    except ProbingError:
        return True
    return True
