"""Compiles and runs code that was sent, and tells how it ended.

Rules of this file: runs in the thread of the eval. Nothing here waits or is limited; that is the
business of `evaluation`. What is shown of a traceback is the user's own.
"""

from __future__ import annotations

import ast
import inspect
import os
import threading
import traceback
from types import CodeType
from typing import Any, NamedTuple

from ...messages.common import EVAL_INTERRUPTED
from ...own_files import is_ours
from ...safety.other_stacks import current_stacks
from ...safety.this_thread import thread_name
from .namespace import LiveGlobals, Names

FILE = "<eval>"
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_LONGEST_NAME = 200
_MOST_THREADS = 100


class EvalInterrupted(BaseException):
    """Raised inside code that has run out of time; clients know it by its name."""


assert EvalInterrupted.__name__ == EVAL_INTERRUPTED


class Pieces(NamedTuple):
    """Compiled statements, and apart from them a last expression, as in a notebook."""

    body: CodeType
    last: CodeType | None

    @classmethod
    def of(cls, code: str) -> Pieces:
        """Compile a text.

        Raises:
            SyntaxError: It is no Python.
        """
        tree = compile(code, FILE, "exec", ast.PyCF_ONLY_AST | _FLAGS, dont_inherit=True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            expression = ast.Expression(tree.body.pop().value)
            last = compile(expression, FILE, "eval", _FLAGS, dont_inherit=True)
        return cls(compile(tree, FILE, "exec", _FLAGS, dont_inherit=True), last)

    def run(self, names: Names) -> Any:
        """Run all of it; returns the value of the last expression.

        Code with an ``await`` outside of any function runs in an event loop of its own.
        """
        live = LiveGlobals(names)
        pieces = [code for code in self if code is not None]
        try:
            if any(code.co_flags & inspect.CO_COROUTINE for code in pieces):
                import asyncio

                return asyncio.run(_await_all(pieces, names, live))
            value = None
            for code in pieces:
                value = eval(code, _globals(code, names, live))  # noqa: S307 - what the user asked for
            return value if self.last is not None else None
        finally:
            live.settle()


async def _await_all(pieces: list[CodeType], names: Names, live: LiveGlobals) -> Any:
    """Run pieces of which some are coroutines; returns the value of the last."""
    value = None
    for code in pieces:
        value = eval(code, _globals(code, names, live))  # noqa: S307 - see above
        if code.co_flags & inspect.CO_COROUTINE:
            value = await value
    return value


def _globals(code: CodeType, names: Names, live: LiveGlobals) -> dict[str, Any]:
    """The globals to run code in: ``__main__`` itself whenever it has all the names."""
    return live if names.needs_frames(code) else names.main


def describe_failure(error: BaseException, names: Names | None) -> str:
    """The traceback of an exception; after an unknown name, what may have been meant."""
    text = own_traceback(error)
    if type(error) is NameError and names is not None and error.name and _is_in_code(error):
        text += names.hint(error.name) + "\n"
    return text


def name_of(value: object) -> str:
    """The name of a value's type, however long somebody has made it."""
    return type(value).__name__[:_LONGEST_NAME]


def shortened(text: str, limit: int) -> str:
    """A text of at most so many characters; of a longer one its beginning and its end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... {left_out:,} characters left out ...\n{text[len(text) - half :]}"


def own_traceback(error: BaseException) -> str:
    """A traceback as the user should see it, without the agent's frames."""
    found = traceback.TracebackException.from_exception(error)
    todo, seen = [found], set()
    while todo:
        link = todo.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        link.stack[:] = [f for f in link.stack if not is_ours(f.filename)]
        todo += [link.__cause__, link.__context__]  # type: ignore[list-item]
    return "".join(found.format())


def own_frames(error: BaseException) -> str:
    """Where the user's code was, as the frames of a traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_ours(f.filename)]
    return "".join(traceback.format_list(frames))


def place_of(ident: int | None) -> str | None:
    """Where the code of an eval is now, innermost line first; None while it is in none."""
    places = []
    for frame in current_stacks().get(ident or 0, []):
        name = frame.f_code.co_filename
        if not is_ours(name):
            places.append(f"{frame.f_code.co_name} ({os.path.basename(name)}:{frame.f_lineno})")
        if name == FILE and frame.f_code.co_name == "<module>":
            return ", called by ".join(places[:4])
    return None


def threads_left(before: set[threading.Thread]) -> tuple[str, ...]:
    """The names of threads that have begun since and still run."""
    own = threading.current_thread()
    left = [t for t in threading.enumerate() if t not in before and t is not own]
    names = [
        thread_name(t)[:_LONGEST_NAME] for t in left if not thread_name(t).startswith("probing-")
    ]
    more = len(names) - _MOST_THREADS
    return (*names[:_MOST_THREADS], *([f"and {more:,} more"] if more > 0 else ()))


def _is_in_code(error: BaseException) -> bool:
    """Whether the code that was sent has raised it itself."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_ours(frame.filename)]
    return bool(own) and own[-1].filename == FILE
