"""One question to one or several processes.

Rules of this file: several endpoints are asked at the same time, each on a daemon thread, and
answer in the order they were named. With one endpoint an error ends the command; with several
it is told on stderr, the others still answer, and the exit code is that of the first failure. An
endpoint that stands for several processes is replaced by them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ...cluster.job.interruption import ends_the_wait
from ...errors import ProbingError
from ...messages.frozen import dataclass
from ..output import terminal
from ..render.text import wrap_lines
from ..target import Target

if TYPE_CHECKING:
    from ...client.base import Process
    from ..output.terminal import Screen

T = TypeVar("T")

_LONGEST_S = 86_400.0
"""Every question keeps a limit of its own; a profile of many steps may take long."""


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
        if self._target.has_many:
            yield from self._ask_members()
            return
        is_cut = False
        pending = [(name, self._start(name)) for name in self._target.endpoints]
        for name, outcome in pending:
            try:
                result = outcome.get(block=not is_cut)
            except queue.Empty:
                continue
            except KeyboardInterrupt:
                if not ends_the_wait():
                    raise
                is_cut = True
                continue
            if isinstance(result, ProbingError):
                terminal.complain(result, endpoint=name)
                self.exit_code = self.exit_code or result.exit_code
            elif isinstance(result, Exception):
                raise result
            else:
                yield result

    def _ask_members(self) -> Iterator[Reply[T]]:
        """Ask all that the endpoints stand for, and say who answered."""
        from ...cluster.job.outcomes import ask_all
        from .many import membership_of, tell_coverage

        members = membership_of(self._target).members
        outcomes = ask_all(
            members,
            lambda process, _: self._question(process),
            timeout_s=self._target.limit_s,
            token=self._target.token,
            deadline_s=_LONGEST_S,
        )
        for outcome in outcomes:
            name = outcome.member.name
            if outcome.state == "answered":
                value = cast("T", outcome.value)  # which may be None
                yield Reply(endpoint=name, value=value, notes=outcome.notes)
            elif outcome.error is not None:
                terminal.complain(outcome.error, endpoint=name)
                self.exit_code = self.exit_code or outcome.error.exit_code
        tell_coverage(outcomes)

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


def show(
    target: Target,
    style: str,
    question: Callable[[Process], T],
    text: Callable[[T, Screen], str],
    plain: Callable[[T], Any] = dataclasses.asdict,  # type: ignore[assignment]
    *,
    markdown: Callable[[T], str] | None = None,
    notes: Callable[[T], Sequence[str]] = lambda _: (),
) -> int:
    """Ask every endpoint and print what it says, under a heading where there are several.

    Args:
        style: ``json`` for the answer, or a list that names the endpoints; ``markdown``; any other
            for text.
        plain: Makes of an answer what is written as JSON.
        notes: What an answer itself has for stderr, beside a text.

    Returns:
        The exit code.
    """
    replies = Replies(target, question)
    answers = []
    for reply in replies:
        told = notes(reply.value) if style != "json" else ()
        tell_notes(target, reply.endpoint, [*reply.notes, *told])
        if style == "json":
            answers.append({"endpoint": reply.endpoint, "answer": plain(reply.value)})
            continue
        if not target.is_single:
            is_document = style == "markdown" and markdown is not None
            terminal.write(f"# {reply.endpoint}" if is_document else f"== {reply.endpoint} ==")
        write_answer(reply.value, style, text, markdown=markdown, wraps=True)
    if style == "json":
        terminal.write_json(answers[0]["answer"] if target.is_single else answers)
    return replies.exit_code


def write_answer(
    value: T,
    style: str,
    text: Callable[[T, Screen], str],
    plain: Callable[[T], Any] = dataclasses.asdict,  # type: ignore[assignment]
    *,
    markdown: Callable[[T], str] | None = None,
    wraps: bool = False,
) -> None:
    """Print what a command has found; the arguments as of `show`.

    Args:
        wraps: Whether lines of the text are broken that are too long for the screen.
    """
    if style == "json":
        terminal.write_json(plain(value))
    elif style == "markdown" and markdown is not None:
        terminal.write(markdown(value))
    else:
        screen = terminal.screen()
        drawn = text(value, screen)
        terminal.write(wrap_lines(drawn, screen.width) if wraps else drawn)


def fitted(render: Callable[..., str], **options: Any) -> Callable[[Any, Screen], str]:
    """A function that draws an answer with its `width` and `color`, for `show`.

    Args:
        options: What else it is called with.
    """

    def text(value: Any, screen: Screen) -> str:
        return render(value, width=screen.width, color=screen.color, **options)

    return text


@contextlib.contextmanager
def telling(target: Target, draw: Callable[[T], str]) -> Iterator[Callable[[T], None]]:
    """Shows on one line how far something is, where one process is asked, and then clears it."""

    def tell(status: T) -> None:
        if target.is_single:
            terminal.progress(draw(status))

    try:
        yield tell
    finally:
        terminal.progress("")
