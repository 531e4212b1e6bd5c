"""Runs inside the process, in the thread that holds the interpreter lock: one piece of code.

Rules of this file: as `bootstrap`: its text is sent with one call of `begin` behind it, stands
alone and runs on every Python from 3.10 on. What the code prints in this thread is caught, what
other threads print goes where it always went. Code that has run out of time is ended at its next
instruction.
"""

# ruff: noqa: ARG001, BLE001, S102, S307, UP031 - what the user asked for; any Python

from __future__ import annotations

import _thread
import os
import sys
import time

TYPE_CHECKING = False  # `typing` may not be loaded there
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, TypedDict

    class Order(TypedDict):
        """What the operator asks for.

        Attributes:
            script: The file that this text was read from; whoever removes it may go on.
            code: The code to run.
            limit_s: How long it may run.
            max_chars: How much of what it prints is kept.
        """

        script: str
        code: str
        limit_s: float
        max_chars: int


class EvalInterrupted(BaseException):
    """Raised inside code that has run out of time."""


class Output:
    """Stands in for ``sys.stdout``: keeps what this thread prints, and passes on the rest."""

    def __init__(self, behind: Any, max_chars: int) -> None:
        self._behind = behind
        self._thread = _thread.get_ident()
        self._room = max_chars
        self.kept: list[str] = []
        self.omitted = 0

    def write(self, text: str) -> int:
        """Keep or pass on."""
        if _thread.get_ident() != self._thread:
            return int(self._behind.write(text))
        kept = text[: self._room]
        self._room -= len(kept)
        self.omitted += len(text) - len(kept)
        self.kept.append(kept)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


def begin(order: Order) -> None:
    """Run the code and leave the result beside the script."""
    try:
        os.unlink(order["script"])
    except OSError:
        return
    try:
        _report(order["script"] + ".result", _evaluate(order))
    except BaseException:
        return


def _evaluate(order: Order) -> dict[str, Any]:
    """Run the code with its output caught and its time limited."""
    names = sys.modules["__main__"].__dict__
    stdout, output = sys.stdout, Output(sys.stdout, order["max_chars"])
    began = time.monotonic()
    end = began + order["limit_s"]

    def watch(frame: FrameType, event: str, argument: object) -> Any:
        if time.monotonic() > end:
            raise EvalInterrupted
        if event == "call" and frame.f_code.co_filename == "<eval>":
            frame.f_trace_opcodes = True  # a loop of one line reaches no other line
        return watch

    value = error = kind = None
    tracing = sys.gettrace()
    sys.stdout = output
    try:
        sys.settrace(watch)
        value = _run(order["code"], names)
    except BaseException as raised:
        sys.settrace(tracing)
        kind, error = type(raised).__name__, _describe(raised, order["limit_s"])
    finally:
        sys.settrace(tracing)
        sys.stdout = stdout
    return {
        "output": "".join(output.kept),
        "omitted": output.omitted,
        "value": value,
        "error": error,
        "error_type": kind,
        "duration_s": time.monotonic() - began,
    }


def _run(code: str, names: dict[str, Any]) -> str | None:
    """Run the statements; returns the representation of a last expression."""
    import ast

    tree = ast.parse(code, "<eval>")
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, "<eval>", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    value = eval(compile(ast.Expression(last.value), "<eval>", "eval"), names)
    return None if value is None else repr(value)[:100_000]


def _describe(error: BaseException, limit_s: float) -> str:
    """The traceback, from the user's own code on."""
    import traceback

    if isinstance(error, EvalInterrupted):
        return "the code was interrupted after its limit of %g s\n" % limit_s
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != "<eval>":
        place = place.tb_next
    return "".join(traceback.format_exception(type(error), error, place))


def _report(path: str, facts: dict[str, Any]) -> None:
    """Leave the result for the operator, whole or not at all."""
    import json

    data = json.dumps(facts).encode()
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    while data:
        data = data[os.write(fd, data) :]
    os.close(fd)
    os.rename(path + ".new", path)
