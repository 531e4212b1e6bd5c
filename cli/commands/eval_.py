"""`probing ENDPOINT eval CODE`: run Python code in the process."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ...errors import EvalTimedOut, UsageError
from ...messages.about.eval import MOST_TIMES, Appointment
from ...messages.common import EVAL_INTERRUPTED, EvalResult
from ..ask.replies import Replies, tell_notes
from ..ask.text_input import TextCommand, read_text
from ..options import refuse_file, style_option
from ..output import terminal
from ..render.errors import render_failure
from ..render.process.evaluation import eval_notes, lost_notes, render_repeated, render_result
from ..render.text import escape_lines
from ..target import Target, attach_option, changed_target, target_options

if TYPE_CHECKING:
    from ...client.base import Process

Run = Callable[["Process", "Appointment | None"], "EvalResult"]

_FAILED = 1


@click.command("eval", cls=TextCommand)
@click.argument("code", required=False)
@target_options
@attach_option
@click.option("-f", "--file", "path", metavar="FILE", help="Read the code from a file.")
@click.option("--now", is_flag=True, help="Do not wait for a safe point of the training.")
@click.option("--thread", metavar="NAME|ID", help="See the locals of this thread.")
@click.option(
    "--frame",
    type=click.IntRange(min=0),
    metavar="N",
    help="See the locals of this frame alone; 0 is the innermost of the script's.",
)
@click.option("--assign", is_flag=True, help="What it assigns goes into the script.")
@click.option(
    "--every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run it again at the end of every N-th step.",
)
@click.option(
    "--steps",
    "times",
    type=click.IntRange(1, MOST_TIMES),
    metavar="K",
    help="How often, with --every; alone: at the ends of the next K steps.",
)
@click.option(
    "--unsafe", is_flag=True,
    help="Run it in the thread that holds the interpreter lock for ever. Can harm the process.",
)  # fmt: skip
@style_option("text", "json")
@click.pass_context
def command(
    context: click.Context,
    *,
    code: str | None,
    path: str | None,
    now: bool,
    thread: str | None,
    frame: int | None,
    assign: bool,
    every: int | None,
    times: int | None,
    unsafe: bool,
    style: str,
) -> None:
    """Run Python code in the process.

    Prints what the code prints, then the value of a last expression. CODE is an argument, -f FILE,
    or - for stdin. It runs while the training is held between two steps; one that makes no progress
    is looked at as it is. --now waits for neither. A raised exception goes to stderr, with exit
    code 1. After ten seconds, or --timeout, waiting included, it is interrupted.

    Names are the script's, then locals of the training thread's functions, then what probing knows:
    model, optimizer, scheduler, scaler, train_loader, batch, loss, step, rank, trainer. Assigned
    names are seen by the next eval, not by the script; --assign changes the local of that name,
    else a global. Objects are live either way.

    --unsafe borrows the thread that keeps the interpreter lock in C code: a last look before the
    process is killed, since its call may end early with half-changed data.

    All ranks of a job run the code at one step, so it may begin collectives; without a common step
    each runs it alone, and a note says why. Code of one rank alone is kept out of collectives,
    which would hang the job. Equal results are shown once.
    """
    as_json = style == "json"
    target = changed_target(context)
    source = _checked(context, code, path)
    seen: dict[str, Any] = {"thread": thread, "frame": frame, "assign": assign}
    if every is not None or times is not None:
        if unsafe or now:
            raise UsageError("--every and --steps wait for the ends of steps; --now does not.")
        if times is None:
            refuse_file(context, "--every without --steps")
        more = {"every": every or 1, "times": times or MOST_TIMES, **seen}
        context.exit(_repeat(target, source, more, as_json=as_json))
    if unsafe:
        terminal.note(
            "the code runs in the thread that holds the interpreter lock; what that thread was"
            " doing may end early or go wrong"
        )

    def run(process: Process, together: Appointment | None = None) -> EvalResult:
        more = {"now": now, "unsafe": unsafe, "together": together, **seen}
        return process.eval(source, timeout_s=target.timeout_s, **more)

    if target.is_single:
        context.exit(_show_each(target, run, as_json=as_json))
    context.exit(_show_many(target, run, may_meet=not (now or unsafe), as_json=as_json))


def _checked(context: click.Context, code: str | None, path: str | None) -> str:
    """The code that was given; one that is no Python ends the command."""
    from ..ask.syntax import find_syntax_error

    source = read_text("code", code, path)
    fault = find_syntax_error(source)
    if fault is not None:
        sentence, excerpt = fault
        color = terminal.screen(sys.stderr).color
        terminal.tell(render_failure(sentence, excerpt=excerpt, color=color))
        context.exit(_FAILED)
    return source


def _show_each(target: Target, run: Run, *, as_json: bool) -> int:
    """Run the code in each process and show its result; returns the exit code."""
    replies = Replies(target, lambda process: run(process, None))
    failed = 0
    for reply in replies:
        tell_notes(target, reply.endpoint, reply.notes)
        _show(reply.value, as_json=as_json)
        failed = failed or _exit_code(reply.value)
    return replies.exit_code or failed


def _show_many(target: Target, run: Run, *, may_meet: bool, as_json: bool) -> int:
    """Run the code in all processes and show equal results once; returns the exit code."""
    from ...cluster.ranks.evaluations import fold_results
    from ...cluster.ranks.gather_evaluations import gather_results
    from ..ask.ranks import asking_of, exit_code, tell_outcomes
    from ..render.ranks.evaluations import plain_results, render_results

    results, outcomes, why = gather_results(
        asking_of(target),
        run,
        may_meet=may_meet,
        limit_s=target.timeout_s,
        connect=target.connect if target.attaches else None,
    )
    if as_json:
        terminal.write_json(plain_results(results))
    else:
        folded = fold_results(results)
        terminal.write(render_results(folded, color=terminal.screen().color))
    if why is not None and results:  # else none has run it
        terminal.note(f"each has run it by itself, not at one step of all ({why})")
    terminal.note(*lost_notes([*results.values()]))
    tell_outcomes(outcomes)
    codes = (_exit_code(result) for result in results.values())
    return exit_code(outcomes) or next((number for number in codes if number), 0)


def _repeat(target: Target, code: str, more: dict[str, Any], *, as_json: bool) -> int:
    """Show each result as it comes; returns the exit code."""
    if not target.is_single:
        raise UsageError("--every asks one process; several have steps of their own.")
    terminal.go_live()
    failed = 0
    process = target.connect(target.endpoints[0])
    for result in process.eval_steps(code, timeout_s=target.timeout_s, **more):
        if as_json:
            _show(result, as_json=True)
        else:
            terminal.write(render_repeated(result))
            if result.error:
                terminal.tell(escape_lines(result.error.rstrip("\n")))
        failed = failed or _exit_code(result)
    return failed


def _exit_code(result: EvalResult) -> int:
    """What the command's exit code should be for one result."""
    if result.error_type == EVAL_INTERRUPTED:
        return EvalTimedOut.exit_code
    return _FAILED if result.error else 0


def _show(result: EvalResult, *, as_json: bool) -> None:
    if as_json:
        import json

        terminal.write(json.dumps(dataclasses.asdict(result)))
        return
    terminal.write(render_result(result))
    for sentence in eval_notes(result):
        terminal.tell(sentence)
    if result.error:
        terminal.tell(escape_lines(result.error.rstrip("\n")))
