"""Options that mean the same on every command: how an answer is written, and how much of it.

Rules of this file: each is declared once, with one name and one sentence; a name that an option had
before is refused with the one that it has now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ..errors import UsageError
from .output import terminal
from .output.formats import FORMATS, choose_format

F = TypeVar("F", bound=Callable[..., Any])

_JSON, _OUTPUT, _WATCH = "probing.json", "probing.output", "probing.watch"
_GIVEN = "probing.given"
_OTHER_LINES = 4
"""What stands above and below the rows of a table."""
_SUFFIXES = {".json": "json", ".md": "markdown", ".markdown": "markdown"}
_PLAIN = frozenset({"text", "table"})
"""Two words for what a person reads; a command takes either."""


if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # has no parameters before click 8.2


class Formats(_Choice):
    """The formats of a command, the first of them the default."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The format of that name."""
        if value in _PLAIN and value not in self.choices:
            value = self.choices[0]
        return super().convert(value, param, ctx)


def together(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Some options as one decorator, in the order in which the help has them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def rows_options(*, former: str | None = None) -> Callable[[F], F]:
    """The options that say where its rows go, and how many.

    Args:
        former: The name that ``--limit`` had before.
    """
    into = click.option(
        "-o", "--output", metavar="FILE",
        help="Write to a file, which appears once it is whole; its suffix tells the format.",
    )  # fmt: skip
    limit = limit_option(
        "How many rows to give",
        default=None,
        former=former,
        shown="what fits, for a table on a terminal, else all",
    )
    return together(into, limit)


def choose_rows(
    ctx: click.Context, given: str | None, output: str | None, limit: int | None
) -> tuple[terminal.Screen, str, int]:
    """What a command with `statement_options` and `rows_options` writes: where, how, how many rows.

    Raises:
        UsageError: Two formats are given, the file's suffix says none, or a terminal would get
            binary data.
    """
    screen = terminal.screen() if output is None else terminal.PLAIN
    said = format_said(ctx, given, output)
    form = choose_format(said, output, is_terminal=screen.is_terminal)
    if limit is None:
        limit = screen.rows_beside(_OTHER_LINES) if form == "table" else 0
    return screen, form, limit


def format_said(ctx: click.Context, given: str | None, output: str | None) -> str | None:
    """What ``--format`` or ``--json`` says; None where the suffix of ``-o`` is to say it.

    A format of the settings file gives way to all that the command line says.

    Raises:
        UsageError: Two formats are given.
    """
    by_user = given_by_user(ctx, "given", given)
    if wants_json(ctx, by_user):
        return "json"
    return given if output is None else by_user


def wants_json(ctx: click.Context, given: str | None) -> bool:
    """Whether ``--json`` was given.

    Raises:
        UsageError: And another format with it.
    """
    if not ctx.meta.get(_JSON):
        return False
    if given not in (None, "json"):
        raise UsageError(f"--json and --format {given} are two formats: use one of them.")
    return True


def given_by_user(ctx: click.Context, name: str, value: str | None) -> str | None:
    """The value of an option where the command line has it, and not the settings file."""
    return None if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP else value


def typed_option(ctx: click.Context, *names: str) -> str | None:
    """The first of some options that the command line has, as it is typed; None without any."""
    for option in ctx.command.params:
        if (
            option.name in names
            and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        ):
            return max(option.opts, key=len)
    return None


def is_overruled(ctx: click.Context, parameter: click.Parameter) -> bool:
    """Whether a default of the settings file meets what the command line said before."""
    assert parameter.name is not None
    given: set[str] = ctx.meta.setdefault(_GIVEN, set())
    if ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
        given.add(parameter.name)
        return False
    return parameter.name in given


def style_option(*styles: str) -> Callable[[F], F]:
    """The options ``--format``, ``--json`` and ``-o`` of a command with few formats."""

    def choose(ctx: click.Context, _: click.Parameter, value: str | None) -> str:
        if ctx.resilient_parsing:
            return styles[0]
        given = given_by_user(ctx, "style", value)
        if wants_json(ctx, given):
            return "json"
        suffix = Path(ctx.meta.get(_OUTPUT) or "").suffix.lower()
        by_suffix = _SUFFIXES.get(suffix)
        return given or (by_suffix if by_suffix in styles else None) or value or styles[0]

    form = click.option(
        "--format",
        "style",
        type=Formats(styles),
        callback=choose,
        help=f"How to print the answer.  [default: {styles[0]}]",
    )
    return together(form, json_option, _OUTPUT_OPTION)


def limit_option(
    what: str,
    *,
    default: int | None,
    former: str | None = None,
    most: int | None = None,
    none: bool = False,
    shown: str | None = None,
) -> Callable[[F], F]:
    """The option ``-n``, ``--limit``: how many of something to give; 0 for all.

    Args:
        what: What is counted: the option's sentence.
        default: How many where nobody says; None where the command decides.
        former: The name that it had before.
        none: Whether 0 means none, where all would be too many.
        shown: What is said of the default, where the command decides.
    """
    ends = f"  [default: {default if shown is None else shown}]"
    option = click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=0, max=most),
        metavar="N",
        default=default,
        help=f"{what}; 0 for {'none' if none else 'all'}.{ends}",
    )
    if former is None:
        return option
    return together(renamed_option(former, "-n, --limit"), option)


def watch_option(*, unless: str | None = None) -> Callable[[F], F]:
    """The option ``--watch SECONDS``: see `AskCommand.invoke`.

    Args:
        unless: The parameter with which the command repeats itself; it finds them by `watch_of`.
    """

    def keep(ctx: click.Context, _: click.Parameter, value: float | None) -> None:
        if value is not None:
            ctx.meta[_WATCH] = (value, unless)

    return click.option(
        "--watch",
        type=click.FloatRange(min=0.1),
        metavar="SECONDS",
        expose_value=False,
        callback=keep,
        help="Look again every so often, until Ctrl-C or the end of the process.",
    )


def watch_of(ctx: click.Context) -> float | None:
    """What ``--watch`` says.

    Raises:
        UsageError: The answer goes to a file.
    """
    every_s: float | None = ctx.meta.get(_WATCH, (None, None))[0]
    if every_s is not None:
        refuse_file(ctx, "--watch")
    return every_s


def repeated_every(ctx: click.Context) -> float | None:
    """How often a command is to be repeated by who runs it; None where it does that itself."""
    every_s, unless = ctx.meta.get(_WATCH, (None, None))
    return None if unless is not None and ctx.params.get(unless) else every_s


def has_file(ctx: click.Context) -> bool:
    """Whether the answer goes to a file."""
    return bool(ctx.meta.get(_OUTPUT) or ctx.params.get("output"))


def refuse_file(ctx: click.Context, what: str) -> None:
    """Make sure that no answer goes to a file that has no end: the file would never appear.

    Args:
        what: Which option has it go on.

    Raises:
        UsageError: One does.
    """
    if has_file(ctx):
        raise UsageError(
            f"-o writes one answer, and {what} goes on: use one of them.",
            help="`> FILE` takes all of it as it comes.",
        )


def renamed_option(former: str, now: str) -> Callable[[F], F]:
    """A name that an option had before: whoever types it is told the one that it has now."""

    def refuse(_: click.Context, __: click.Parameter, value: str | None) -> None:
        if value is not None:
            words = now.replace(", ", " or ")
            raise UsageError(
                f"{former} is called {words} now.", help=f"For example: {_said(now, value)}"
            )

    return click.option(
        former,
        f"former{former.replace('-', '_')}",
        expose_value=False,
        hidden=True,
        metavar="N",
        callback=refuse,
    )


def _said(now: str, value: str) -> str:
    return f"`{now.partition(',')[0]} {value}`"


def _keep_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value:
        ctx.meta[_JSON] = True


def _keep_output(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None and not ctx.resilient_parsing:
        ctx.meta[_OUTPUT] = value
        terminal.write_to(value)


def _be_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value and not ctx.resilient_parsing:
        terminal.ways.verbose = True


def _be_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value and not ctx.resilient_parsing:
        terminal.ways.quiet = True


def _set_color(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and not ctx.resilient_parsing and not is_overruled(ctx, parameter):
        terminal.ways.color = value


def _leave_out_the_pager(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value and not ctx.resilient_parsing:
        terminal.ways.is_paged = False


json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_keep_json,
    help="Short for --format json.",
)
"""The option ``--json``, short for ``--format json``; see `wants_json`."""
statement_options = together(
    click.option("-f", "--file", "path", metavar="FILE", help="Read the SQL from a file."),
    click.option(
        "-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE",
        help="The value of $NAME in the SQL; may be given several times.",
    ),
    click.option(
        "--format", "given", type=click.Choice(list(FORMATS)),
        help="How to write the rows.  [default: table, or what the file's suffix says]",
    ),
    json_option,
)  # fmt: skip
"""The options of a command that takes a statement: where it is, and how rows are written."""
tls_options = together(
    click.option(
        "--tls-cert", metavar="FILE", help="The certificate to show; the same as PROBING_TLS_CERT."
    ),
    click.option("--tls-key", metavar="FILE", help="Its key; the same as PROBING_TLS_KEY."),
)
"""Those of a command that listens."""
_OUTPUT_OPTION = click.option(
    "-o",
    "--output",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_keep_output,
    help="Write the answer to a file, which appears once it is whole.",
)
verbosity_options = together(
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_be_verbose,
        help="Show what is folded or left out.",
    ),
    click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_be_quiet,
        help="No notes on stderr, only errors.",
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        expose_value=False,
        callback=_set_color,
        help="When to use colours.  [default: auto]",
    ),
    click.option(
        "--no-pager",
        is_flag=True,
        expose_value=False,
        callback=_leave_out_the_pager,
        help="Show long answers without a pager.",
    ),
)
"""The options ``-v``, ``-q`` and ``--color``, in force for all that a command prints."""
