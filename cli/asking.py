"""One question to one or several processes.

Rules of this file: several endpoints are asked at the same time, each on a daemon thread, and
answer in the order they were named. With one endpoint an error ends the command; with several
it is told on stderr, the others still answer, and the exit code is that of the first failure.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import ProbingError
from . import terminal
from .target import Target

if TYPE_CHECKING:
    from ..client import Process

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Generic[T]):
    """What one endpoint answered.

    Attributes:
        notes: What the person should know about how it was answered.
    """

    endpoint: str
    value: T
    notes: tuple[str, ...] = ()


class Replies(Generic[T]):
    """The replies of all endpoints that gave one, in the order they were named.

    Attributes:
        exit_code: That of the first endpoint that failed; 0 when none did. Complete once all
            replies have been read.
    """

    def __init__(self, target: Target, question: Callable[[Process], T]) -> None:
        self._target, self._question = target, question
        self.exit_code = 0

    def __iter__(self) -> Iterator[Reply[T]]:
        """Ask, and give each reply as soon as those before it are there."""
        if self._target.is_single:
            yield self._ask(self._target.endpoints[0])
            return
        pending = [(name, self._start(name)) for name in self._target.endpoints]
        for name, outcome in pending:
            result = outcome.get()
            if isinstance(result, ProbingError):
                terminal.complain(result, endpoint=name)
                self.exit_code = self.exit_code or result.exit_code
            elif isinstance(result, Exception):
                raise result
            else:
                yield result

    def _ask(self, endpoint: str) -> Reply[T]:
        process = self._target.connect(endpoint)
        value = self._question(process)
        return Reply(endpoint=endpoint, value=value, notes=tuple(process.notes()))

    def _start(self, endpoint: str) -> queue.SimpleQueue[Reply[T] | Exception]:
        """Ask on a thread of its own; the outcome arrives in the queue."""
        outcome: queue.SimpleQueue[Reply[T] | Exception] = queue.SimpleQueue()

        def work() -> None:
            try:
                outcome.put(self._ask(endpoint))
            except Exception as error:  # noqa: BLE001  raised again where the outcome is read
                outcome.put(error)

        threading.Thread(target=work, name=f"ask {endpoint}", daemon=True).start()
        return outcome


def tell_notes(target: Target, endpoint: str, notes: Iterable[str]) -> None:
    """Put notes on stderr, with the endpoint where there are several."""
    for note in notes:
        terminal.note(note if target.is_single else f"{endpoint}: {note}")


def show_each(target: Target, question: Callable[[Process], T], render: Callable[[T], str]) -> int:
    """Ask every endpoint and print what it says, under a heading where there are several.

    Returns:
        The exit code.
    """
    replies = Replies(target, question)
    for reply in replies:
        tell_notes(target, reply.endpoint, reply.notes)
        if not target.is_single:
            terminal.write(f"== {reply.endpoint} ==")
        terminal.write(render(reply.value))
    return replies.exit_code


def show_json(
    target: Target, question: Callable[[Process], T], as_plain: Callable[[T], Any]
) -> int:
    """Ask every endpoint and print JSON: the answer, or a list that names the endpoints.

    Returns:
        The exit code.
    """
    import json

    replies = Replies(target, question)
    answers = []
    for reply in replies:
        tell_notes(target, reply.endpoint, reply.notes)
        answers.append({"endpoint": reply.endpoint, "answer": as_plain(reply.value)})
    shown = answers[0]["answer"] if target.is_single else answers
    terminal.write(json.dumps(shown, indent=2, ensure_ascii=False))
    return replies.exit_code
