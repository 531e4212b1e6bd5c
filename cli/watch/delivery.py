"""Brings events to those who want to know: a webhook, or a command of the user's.

Rules of this file: a thread of its own delivers, one event after the other; what cannot be
delivered is tried again a few times, then given up, and said. A receiver that is dead keeps
nobody waiting: no more than `MOST_WAITING` events wait, and the oldest goes first.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import UsageError
from ...messages.frozen import dataclass
from ..output import terminal

MOST_WAITING = 100
_LIMIT_S = 10.0
_TRIES_S = (0.0, 1.0, 5.0)
"""How long to wait before each try."""
_COMMAND_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """Somebody who wants to know.

    Attributes:
        name: What it is called in a note.
        deliver: Brings an event there; raises `OSError` where that fails.
        forgets: Whether it is to be told again and again of what stands.
    """

    name: str
    deliver: Callable[[Any], None]
    forgets: bool = False


class _Redirected(OSError):
    """Whether an event was taken is not known, and another try would be answered the same."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: urllib would ask there by GET, without the event."""

    def redirect_request(self, *_: object) -> None:
        """Ask nowhere else."""


def address_in(environment: Mapping[str, str], name: str) -> str:
    """The address of a webhook, in a variable of an environment.

    Raises:
        UsageError: It is not set.
    """
    address = environment.get(name, "").strip()
    if not address:
        raise UsageError(f"--webhook-env {name}: this variable is not set.")
    return address


def webhook(url: str, payload: Callable[[str, Any], Any], *, forgets: bool = False) -> Receiver:
    """A receiver that is posted JSON.

    Args:
        payload: Makes of the address and an event what is posted.
        forgets: Whether it is to be told again and again of what stands.

    Raises:
        UsageError: It is no address of HTTP.
    """
    if not re.fullmatch(r"https?://[^\s\x00-\x1f\x7f]+", url):  # not shown: it may be a secret
        raise UsageError("a webhook is not an address that begins with http:// or https://.")

    opener = urllib.request.build_opener(_NoRedirects)

    def deliver(event: Any) -> None:
        body = json.dumps(payload(url, event)).encode()
        request = urllib.request.Request(  # noqa: S310 - the scheme was looked at
            url, data=body, headers={"Content-Type": "application/json"}, method="POST"
        )
        try:
            opener.open(request, timeout=_LIMIT_S).close()
        except urllib.error.HTTPError as error:
            said = f"it answered {error.code}"
            if error.code == http.HTTPStatus.SEE_OTHER:  # it was taken; its page is elsewhere
                return
            if error.code < http.HTTPStatus.BAD_REQUEST:
                raise _Redirected(f"{said}, a redirect, and may have taken it") from None
            raise OSError(said) from None

    host = url.split("/")[2].rpartition("@")[2]  # a path may be a secret
    return Receiver(name=f"the webhook at {host}", deliver=deliver, forgets=forgets)


def user_command(line: str, payload: Callable[[Any], Any]) -> Receiver:
    """A command of the shell that gets an event as JSON on its standard input."""

    def deliver(event: Any) -> None:
        text = json.dumps(payload(event))
        try:
            done = subprocess.run(  # noqa: S602 - it is the user's own command
                line,
                shell=True,
                input=text,
                text=True,
                timeout=_COMMAND_S,
                stdout=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OSError(f"it took more than {_COMMAND_S:.0f} s") from None
        if done.returncode:
            raise OSError(f"it ended with {done.returncode}")

    return Receiver(name="the command", deliver=deliver)


class Delivery:
    """Events on their way to the receivers."""

    def __init__(
        self, receivers: Sequence[Receiver], *, tries_s: Sequence[float] = _TRIES_S
    ) -> None:
        """Start a thread for each receiver, so that one that is slow holds up no other.

        Args:
            tries_s: How long to wait before each try.
        """
        self._tries_s = tries_s
        self._stopping = threading.Event()
        self._lines: list[queue.Queue[Any]] = []
        self._forgetful: list[queue.Queue[Any]] = []
        self._threads: list[threading.Thread] = []
        for receiver in receivers:
            line: queue.Queue[Any] = queue.Queue(MOST_WAITING)
            thread = threading.Thread(target=self._work, args=(receiver, line), daemon=True)
            thread.start()
            self._lines.append(line)
            self._forgetful += [line] if receiver.forgets else []
            self._threads.append(thread)

    def send(self, event: Any) -> None:
        """Have an event delivered; returns at once."""
        for line in self._lines:
            while True:
                try:
                    line.put_nowait(event)
                    break
                except queue.Full:
                    self._drop(line)

    def remind(self, events: tuple[Any, ...]) -> None:
        """Have those who forget told of what stands, all at once; no more while anything waits."""
        for line in self._forgetful:
            if events and line.empty():
                line.put_nowait(events)

    def close(self, timeout_s: float) -> None:
        """Wait until all is delivered, or for so long."""
        end = time.monotonic() + timeout_s
        for line in self._lines:
            with contextlib.suppress(queue.Full):
                line.put(None, timeout=max(0.0, end - time.monotonic()))
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._stopping.set()

    def _drop(self, line: queue.Queue[Any]) -> None:
        try:
            line.get_nowait()
        except queue.Empty:
            return
        terminal.note(f"{MOST_WAITING} events wait for a receiver: the oldest was given up.")

    def _work(self, receiver: Receiver, line: queue.Queue[Any]) -> None:
        is_lost = False
        while (event := line.get()) is not None:
            reason = self._try(receiver, event)
            was_lost, is_lost = is_lost, reason is not None
            if reason is not None and not (was_lost and isinstance(event, tuple)):
                terminal.note(f"an event could not be brought to {receiver.name}: {reason}.")

    def _try(self, receiver: Receiver, event: Any) -> str | None:
        """Deliver an event; returns why it could not be."""
        reason = ""
        for wait_s in self._tries_s:
            if self._stopping.wait(wait_s):
                break
            try:
                receiver.deliver(event)
            except _Redirected as error:
                return str(error)
            except (OSError, http.client.HTTPException, ValueError) as error:  # urllib's, too
                reason = str(getattr(error, "reason", error))
            else:
                return None
        return reason or "the watch has ended"
