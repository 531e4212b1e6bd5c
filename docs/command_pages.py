"""The pages of the command line: its commands and options, and what programs may rely on.

Rules of this file: as those of `generate`.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from typing import get_args

import click
from markdown_parts import anchor, bullets, grid, page, prose

from probing.cli.command import examples_of, usage_path
from probing.cli.group import probing as cli
from probing.cli.help.contract import EXIT_CODES, OUTPUTS, OWN_CODES
from probing.cli.help.examples import ANSWERS
from probing.cli.tasks import TASKS
from probing.client.listing import State

_COMMON_FROM = 5  # as many commands share an option before it is explained apart from them
_TARGET_OPTIONS = 8  # the first of those of `probing`: whom to ask, and how
_CLI_COMMON = "All but {} take these, too, before or behind their names; each takes `-h`."
_CLI_SHARED = "Options of several commands:"
_CONTRACT_INTRO = (
    "A program may rely on what stands here. Keys are added; none goes or changes its meaning"
    " without a line in the changelog. Answers go to stdout, and notes, progress and errors to"
    " stderr. An exit code other than 0 does not mean that stdout is empty: `--check` answers with"
    " what it has found, `eval` with what its code has printed before it failed, Ctrl-C leaves a"
    " part, and of several processes the code is that of the first that failed, and the answers of"
    " the others are there."
)
_CONTRACT_ERRORS = (
    "An error is one sentence on stderr that begins with `error:`, and what to do next below it."
    " [Errors](errors.md) lists them with their codes. What a user's code raises is none: its"
    " traceback is on stderr, with `--json` in the answer. Beyond that:"
)
_CONTRACT_JSON = (
    "With `--json`, one value: an object; an `array` of objects; or `rows`, an array of objects"
    " whose keys are the columns. Of several processes (`-t A -t B`) a command that asks each by"
    " itself writes an array of `{endpoint, answer}`. What was not measured is `null`; NaN and the"
    ' infinities are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`. Keys that end in `_s`,'
    " `_ns` or `_bytes` are in that unit. Actions beside `act lr` answer as it does."
)
_CONTRACT_STATES = (
    "`state` of `list` and `overview` is one of {}, which some screens show as `ended`. In a job it"
    " is also `missing`."
)
_METAVAR = re.compile(r" [A-Z]+(?=`$)")  # said where the option is explained
_WHICH_ERROR = "Errors and their codes: [Errors](errors.md)."


def cli_page() -> str:
    """Every command and option."""
    contexts = list(_contexts())
    used = collections.Counter(row for context in contexts for row in _options(context))
    everywhere = _options(contexts[0])
    common = [row for row in used if used[row] >= _COMMON_FROM and row not in everywhere]
    parts = ["# Command line", prose(cli.help), _usage(contexts[0])]
    asked = grid(("what is asked most", "command"), ((q, f"`{c}`") for q, c in ANSWERS))
    parts += [prose(cli.epilog), asked, _tasks(), bullets(everywhere)]
    target_options = {*everywhere[:_TARGET_OPTIONS]}
    without = [c.command_path for c in contexts if not target_options <= {*_options(c)}]
    parts += [_CLI_COMMON.format(", ".join(f"`{path}`" for path in without)), _CLI_SHARED]
    parts.append(bullets(common))
    for context in contexts[1:]:
        depth = "##" if context.parent is contexts[0] else "###"
        parts += [f"{depth} {context.command_path}", prose(context.command.help), _usage(context)]
        rows = _options(context)
        own = [row for row in rows if row not in everywhere and row not in common]
        parts.append(bullets(own))
        examples = "\n".join(examples_of(context))
        parts += [f"```text\n{examples}\n```"] if examples else []
        shared = ", ".join(_METAVAR.sub("", row[0]) for row in rows if row in common)
        parts += [f"Common: {shared}."] if shared else []
    return page([*parts, _WHICH_ERROR])


def contract_page() -> str:
    """What programs may rely on: exit codes and keys."""
    parts = ["# Exit codes and JSON", _CONTRACT_INTRO, "## Exit codes"]
    parts.append(grid(("code", "meaning"), ((f"`{n}`", text) for n, text in EXIT_CODES.items())))
    parts += [_CONTRACT_ERRORS, bullets((f"`probing {n}`", text) for n, text in OWN_CODES.items())]
    parts += ["## JSON", _CONTRACT_JSON]
    rows = (
        (f"`{name}`", output.shape, ", ".join(f"`{key}`" for key in output.all_keys()))
        for name, output in OUTPUTS.items()
    )
    parts.append(grid(("command", "shape", "keys"), rows))
    parts.append(_CONTRACT_STATES.format(", ".join(f"`{state}`" for state in get_args(State))))
    return page(parts)


def _tasks() -> str:
    """The commands by what they are for."""
    links = (
        (task, ", ".join(f"[`{name}`](#{anchor(f'probing {name}')})" for name in commands))
        for task, commands in TASKS.items()
    )
    return grid(("what for", "commands"), links)


def _contexts(parent: click.Context | None = None) -> Iterator[click.Context]:
    """A command's context, then those of the commands in it; at first that of `probing`."""
    context = parent or click.Context(
        cli, info_name="probing", resilient_parsing=True, **cli.context_settings
    )
    yield context
    if not isinstance(context.command, click.Group):
        return
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        assert command is not None
        yield from _contexts(
            click.Context(command, info_name=name, parent=context, resilient_parsing=True)
        )


def _usage(context: click.Context) -> str:
    """The usage line, where there are arguments."""
    pieces = context.command.collect_usage_pieces(context)
    if pieces == [context.command.options_metavar]:
        return ""
    return f"`{' '.join((usage_path(context), *pieces))}`"


def _options(context: click.Context) -> list[tuple[str, str]]:
    """The options and their meanings."""
    records = [p.get_help_record(context) for p in context.command.get_params(context)]
    return [(f"`{shown}`", prose(meaning)) for shown, meaning in filter(None, records) if meaning]
