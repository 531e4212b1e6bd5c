"""Options that mean the same on every command: how an answer is written, and how much of it.

Rules of this file: each is declared once, with one name and one sentence; a name that an option had
before is refused with the one that it has now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import UsageError
from . import terminal

F = TypeVar("F", bound=Callable[..., Any])

_JSON, _OUTPUT = "probing.json", "probing.output"
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


def json_option(function: F) -> F:
    """The option ``--json``, short for ``--format json``; see `wants_json`."""
    return click.option(
        "--json",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_keep_json,
        help="Short for --format json.",
    )(function)


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


def style_option(*styles: str) -> Callable[[F], F]:
    """The options ``--format``, ``--json`` and ``-o`` of a command with few formats."""

    def choose(ctx: click.Context, _: click.Parameter, value: str | None) -> str:
        if ctx.resilient_parsing:
            return styles[0]
        if wants_json(ctx, value):
            return "json"
        suffix = Path(ctx.meta.get(_OUTPUT) or "").suffix.lower()
        by_suffix = _SUFFIXES.get(suffix, styles[0])
        return value or (by_suffix if by_suffix in styles else styles[0])

    def decorate(function: F) -> F:
        return click.option(
            "--format",
            "style",
            type=Formats(styles),
            callback=choose,
            help=f"How to print the answer.  [default: {styles[0]}]",
        )(json_option(_OUTPUT_OPTION(function)))

    return decorate


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

    def decorate(function: F) -> F:
        ends = f"  [default: {default if shown is None else shown}]"
        function = click.option(
            "-n",
            "--limit",
            type=click.IntRange(min=0, max=most),
            metavar="N",
            default=default,
            help=f"{what}; 0 for {'none' if none else 'all'}.{ends}",
        )(function)
        return function if former is None else renamed_option(former, "-n, --limit")(function)

    return decorate


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


def verbosity_options(function: F) -> F:
    """The options ``-v``, ``-q`` and ``--color``, in force for all that this command prints."""
    for decorate in reversed(_VERBOSITY):
        function = decorate(function)
    return function


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


def _set_color(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None and not ctx.resilient_parsing:
        terminal.ways.color = value


_OUTPUT_OPTION = click.option(
    "-o",
    "--output",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_keep_output,
    help="Write the answer to a file, which appears once it is whole.",
)
_VERBOSITY = (
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
)
