"""How a command shows its help: usage with the endpoint, its own options first, examples last.

Rules of this file: no command is named here but in `EXAMPLES`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from .help.examples import EXAMPLES
from .options import given_by_user, has_file, repeated_every, wants_json
from .target import Target
from .tasks import WITH_WORDS_OF_THEIR_OWN

COMMON = "Options of every command"
_ENDPOINT = "ENDPOINT"


def paged_help(option: click.Option | None) -> click.Option | None:
    """The option ``--help``, which shows what is long through a pager."""
    if option is not None:
        from .attending import show_help

        option.callback = show_help
    return option


class AskCommand(click.Command):
    """A command of ours."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it, with ``--watch`` again and again."""
        every_s = repeated_every(ctx)
        if every_s is None:
            from .attending import IN_PARTS, attend

            return attend(
                lambda: super(AskCommand, self).invoke(ctx),
                _awaited(ctx),
                in_parts=self.name in IN_PARTS,
            )
        from .watch.repeating import Repeated, repeat

        what = Repeated(
            command=shlex.join(["probing", *sys.argv[1:]]),
            form=_form(ctx),
            has_file=has_file(ctx),
            target=Target.of(ctx),
        )
        return ctx.exit(repeat(lambda: super(AskCommand, self).invoke(ctx), what, every_s))

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """As click's, with a pager for what is long."""
        return paged_help(super().get_help_option(ctx))

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does it, with the endpoint where it is typed."""
        formatter.write_usage(usage_path(ctx), " ".join(self.collect_usage_pieces(ctx)))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options, then those that every command has."""
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples."""
        write_examples(examples_of(ctx), formatter)


class AskGroup(AskCommand, click.Group):
    """A command that has commands in it."""

    command_class = AskCommand

    def __init__(self, *args: object, **kwargs: object) -> None:
        settings = {"help_option_names": ["-h", "--help"]}
        super().__init__(*args, context_settings=settings, **kwargs)  # type: ignore[arg-type]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command in it, which is attended to by itself."""
        return click.Group.invoke(self, ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `AskCommand`; its commands come first."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def usage_path(ctx: click.Context) -> str:
    """The words up to the command: `probing ENDPOINT act lr`."""
    words = _words(ctx)
    asks = any(option.name == "target" for option in ctx.command.params)
    who = [_ENDPOINT] if words and asks and words[0] not in WITH_WORDS_OF_THEIR_OWN else []
    return " ".join(["probing", *who, *words])


def examples_of(ctx: click.Context) -> Sequence[str]:
    """How the command is used."""
    return EXAMPLES.get(" ".join(_words(ctx)), ())


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """The examples under their heading."""
    if examples:
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """The options of a command, then those that it shares with every other."""
    shared = _shared_names(ctx)
    own: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        record = None
        if isinstance(parameter, click.Option):
            record = parameter.get_help_record(ctx)
        if record is not None:
            (common if parameter.name in shared else own).append(record)
    for name, records in (("Options", own), (COMMON, common)):
        if records:
            with formatter.section(name):
                formatter.write_dl(records)


def _shared_names(ctx: click.Context) -> set[str | None]:
    """The options of `probing` itself, which every command takes, too."""
    root = ctx.find_root()
    return {parameter.name for parameter in root.command.params} if root is not ctx else set()


def _awaited(ctx: click.Context) -> str:
    """What is waited for while nothing better is known."""
    words, name = Target.of(ctx).words, " ".join(_words(ctx))
    return f"asking {words.removeprefix('-t ')}: {name}" if words else name


def _form(ctx: click.Context) -> str:
    """The format of its answer."""
    if "style" in ctx.params:
        return str(ctx.params["style"])
    given = ctx.params.get("given")
    is_json = wants_json(ctx, given_by_user(ctx, "given", given))
    return "json" if is_json else given or "table"


def _words(ctx: click.Context) -> list[str]:
    """The names of the command and of those that it is in, without `probing`."""
    names: list[str] = []
    here: click.Context | None = ctx
    while here is not None and here.parent is not None:
        names.insert(0, here.info_name or "")
        here = here.parent
    return names
