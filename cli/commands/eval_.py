"""`probing ENDPOINT eval CODE`: run Python code in the process."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

import click

from ...errors import EvalTimedOut
from ...wire import EVAL_INTERRUPTED
from .. import terminal
from ..asking import Replies, tell_notes
from ..render.errors import render_failure
from ..render.evaluation import eval_notes, render_result
from ..render.text import escape_lines
from ..target import asked_target, attach_option, target_options
from ..text_input import TextCommand, read_text

if TYPE_CHECKING:
    from ...wire import EvalResult

_FAILED = 1


@click.command("eval", cls=TextCommand)
@click.argument("code", required=False)
@target_options
@attach_option
@click.option("-f", "--file", "path", metavar="FILE", help="Read the code from a file.")
@click.option("--now", is_flag=True, help="Do not wait for a safe point of the training.")
@click.option(
    "--unsafe", is_flag=True,
    help="Run it in the thread that holds the interpreter lock for ever. Can harm the process.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print everything known as JSON.")
@click.pass_context
def command(
    context: click.Context,
    *,
    code: str | None,
    path: str | None,
    now: bool,
    unsafe: bool,
    as_json: bool,
) -> None:
    """Run Python code in the process.

    Prints what the code prints, then the value of a last expression. CODE is given as an
    argument, with -f FILE, or as - to read it from stdin. It sees the names of the training
    script, and runs while the training stands still between two steps, so that it may touch
    models and optimizers; a training that makes no progress is looked at as it is. --now does not
    wait for either. When the code raises, its traceback goes to stderr and the exit code is 1.

    A process that is stuck in C code which keeps the interpreter lock can run nothing. --unsafe
    borrows the very thread that keeps it: a last look before the process is killed, because the
    call it is in may end early, and half-changed data of that call is the code's to meet.
    """
    from ..syntax import find_syntax_error

    target = asked_target(context)
    source = read_text("code", code, path)
    fault = find_syntax_error(source)
    if fault is not None:
        sentence, excerpt = fault
        color = terminal.screen(sys.stderr).color
        terminal.tell(render_failure(sentence, excerpt=excerpt, color=color))
        context.exit(_FAILED)
    if unsafe:
        terminal.note(
            "the code runs in the thread that holds the interpreter lock; what that thread was"
            " doing may end early or go wrong"
        )
    replies = Replies(
        target,
        lambda process: process.eval(source, timeout_s=target.timeout_s, now=now, unsafe=unsafe),
    )
    failed = 0
    for reply in replies:
        tell_notes(target, reply.endpoint, reply.notes)
        heading = None if target.is_single else reply.endpoint
        _show(reply.value, heading, as_json=as_json)
        failed = failed or _exit_code(reply.value)
    context.exit(replies.exit_code or failed)


def _exit_code(result: EvalResult) -> int:
    """What the command's exit code should be for one result."""
    if result.error_type == EVAL_INTERRUPTED:
        return EvalTimedOut.exit_code
    return _FAILED if result.error else 0


def _show(result: EvalResult, heading: str | None, *, as_json: bool) -> None:
    """Print one result; `heading` names the endpoint where there are several."""
    if as_json:
        import json

        facts = dataclasses.asdict(result)
        terminal.write(json.dumps({"endpoint": heading, **facts} if heading else facts))
        return
    if heading:
        terminal.write(f"== {heading} ==")
    terminal.write(render_result(result))
    for sentence in eval_notes(result):
        terminal.tell(sentence)
    if result.error:
        terminal.tell(escape_lines(result.error.rstrip("\n")))
