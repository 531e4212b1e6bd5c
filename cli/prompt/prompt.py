"""What a prompt does with each thing that is typed.

Rules of this file: reads from whatever hands it lines, see `prompt_reader`; the code runs in the
process, nothing of it here. An error is told, and the prompt goes on, unless nobody is left to ask.
"""

from __future__ import annotations

import ast
import codeop
import contextlib
import secrets
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ...errors import ProbingError, Unreachable
from ..output import terminal
from ..render.process.evaluation import eval_notes, render_result
from ..render.text import escape_lines
from ..target import Target

if TYPE_CHECKING:
    from ...client.base import Process

HELP = """\
Lines of Python run in the process, between two steps of its training. The last
expression is shown, and _ is its value in the next line, for ten minutes.
Names that are assigned are the prompt's: they go with it, or after an hour
without a line.

  %sql STATEMENT   ask the tables, as the command `query` does
  %bt              where every thread is; %bt -v with every frame
  %who             the names there are, and what each of them is; %who NAME...
  %jobs            the code that is being run
  %help            this text
  %quit            leave; so does Ctrl-D, and the training goes on

A block ends with an empty line. Ctrl-C ends what runs. Tab completes names of
the process.
"""
COMMANDS = ("%sql ", "%bt", "%who", "%jobs", "%help", "%quit")
_ROWS = 40


class Reader(Protocol):
    """Where what is typed comes from."""

    def __iter__(self) -> Iterator[str]:
        """Each thing that is typed, of one or more lines."""


class Prompt:
    """A conversation with one process.

    Attributes:
        session: What its lines have in common.
    """

    def __init__(self, target: Target, process: Process) -> None:
        self.session = secrets.token_hex(8)
        self._target = target
        self._process = process
        self._commands: dict[str, Callable[[str], None]] = {
            "sql": self._sql,
            "bt": self._backtrace,
            "who": self._who,
            "jobs": self._jobs,
            "help": lambda _: terminal.write(HELP),
        }

    def run(self, reader: Reader) -> int:
        """Answer until there is no more.

        Returns:
            The exit code: 1 when anything that was asked has failed.

        Raises:
            Unreachable: The process is gone.
        """
        try:
            return self._answer_all(reader)
        finally:
            with contextlib.suppress(ProbingError):  # it has gone, or does not answer
                self._process.end_session(self.session)

    def _answer_all(self, reader: Reader) -> int:
        failed = False
        for text in (part for typed in reader for part in parts_of(typed)):
            if text.strip() in {"%quit", "%exit", "exit", "quit", "exit()", "quit()"}:
                break
            try:
                failed = not self._answer(text) or failed
            except KeyboardInterrupt:
                terminal.tell("ended")
            except Unreachable:
                raise
            except ProbingError as error:
                terminal.complain(error)
                failed = True
        return int(failed)

    def _answer(self, text: str) -> bool:
        """Do what was typed; returns whether it went well."""
        if not text.strip():
            return True
        if not text.lstrip().startswith("%"):
            return self._eval(text)
        name, _, rest = text.strip()[1:].partition(" ")
        command = self._commands.get(name)
        if command is None:
            terminal.tell(f"there is no %{name}; %help shows what there is")
            return False
        command(rest.strip())
        return True

    def _eval(self, code: str) -> bool:
        """Run code in the process, and show what comes."""
        result = self._process.eval(code, timeout_s=self._target.timeout_s, session=self.session)
        terminal.write(render_result(result))
        if result.omitted_bytes or result.left:
            for note in eval_notes(result)[: bool(result.omitted_bytes) + bool(result.left)]:
                terminal.tell(note)
        if result.error:
            terminal.tell(escape_lines(result.error.rstrip("\n")))
        return result.error is None

    def _sql(self, statement: str) -> None:
        from ..ask.answering import Question, answer

        question = Question(
            sql=statement,
            form="table",
            output=None,
            max_rows=_ROWS,
            screen=terminal.screen(),
            all_by="`query -n 0` in a shell",
        )
        answer(self._target, question)

    def _backtrace(self, options: str) -> None:
        from ..render.process.stacks import render_backtrace

        trace = self._process.backtrace()
        is_whole = "-v" in options.split()
        terminal.write(render_backtrace(trace, is_whole=is_whole, color=terminal.screen().color))

    def _who(self, wanted: str) -> None:
        from .names_there import ask_for_names, render_names

        names = ask_for_names(self._process, wanted.split(), self.session)
        terminal.write(render_names(names, width=terminal.screen().width))

    def _jobs(self, _: str) -> None:
        from ..render.process.eval_jobs import render_jobs

        terminal.write(render_jobs(self._process.jobs().jobs))


def is_whole(text: str) -> bool:
    """Whether what was typed so far can be run: a block goes on until an empty line."""
    if not text.strip() or text.lstrip().startswith("%"):
        return True
    before, line_break, last = text.rpartition("\n")
    if not last.strip():  # blank but for the indent that the prompt puts there
        text = before + line_break
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return compiler(text, "<eval>", "single") is not None
    except (SyntaxError, ValueError, OverflowError):
        return True  # it never will be; the process says what is wrong


def parts_of(text: str) -> list[str]:
    """What was typed, parted where a command of the prompt ends a block of Python."""
    lines = text.split("\n")
    at = next((i for i, line in enumerate(lines) if i and line.startswith("%")), None)
    if at is None or lines[0].startswith("%") or _is_python(text):
        return [text]
    return ["\n".join(lines[:at]), lines[at], *parts_of("\n".join(lines[at + 1 :]))]


def _is_python(text: str) -> bool:
    """Whether all of a text is Python, such as a remainder that goes on in the next line."""
    try:
        compile(text, "<eval>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, OverflowError):
        return False
    return True


class PlainReader:
    """Reads standard input where nobody types."""

    def __iter__(self) -> Iterator[str]:
        """See `Reader`."""
        lines: list[str] = []
        for line in sys.stdin:
            lines.append(line.rstrip("\n"))
            text = "\n".join(lines)
            if is_whole(text):
                yield text
                lines = []
        if lines:
            yield "\n".join(lines)
