"""The group ``probing``: which word is the endpoint, which the command.

Rules of this file: the first word that is no command is the endpoint; it is rewritten to
``-t ENDPOINT`` before click parses, so that both ways of writing are one. Commands are
imported by name when they are used; their modules import nothing heavy at their top.
"""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from ..errors import UsageError
from ..messages.frozen import dataclass
from .command import paged_help
from .completion import complete_endpoints
from .help.examples import ANSWERS
from .output import terminal
from .preferences import default_map, endpoints_named
from .target import Target, target_options
from .tasks import COMMANDS, SHORT_FORMS, TASKS, WITH_WORDS_OF_THEIR_OWN

COMPLETE_VARIABLE = "_PROBING_COMPLETE"

_OVERVIEW = "overview"
_WHOLE = 1000
"""More letters than the first sentence of any command's help has: it is shown whole."""
_HELP = frozenset({"-h", "--help"})
_ALONE = "(none)"
"""What stands for no word at all."""
_TARGETS = re.compile(r"-t|--target")
_IS_ENDPOINT = re.compile(r"\d+|all|(?:rank|job|slurm|k8s|ray|store):\S*|[\w.-]+:\d+|https?://\S+")
"""What is nothing else, wherever it stands."""
_LOOKS_LIKE_ENDPOINT = re.compile(r"\d+|all|@.*|.*[:/].*")


class CommandGroup(click.Group):
    """A group of lazily imported commands that may follow an endpoint."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """As click's, with a pager for what is long."""
        return paged_help(super().get_help_option(ctx))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order of their use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None when there is none."""
        name = SHORT_FORMS.get(cmd_name, cmd_name)
        if name not in COMMANDS and name != _ALONE:
            return None
        module = importlib.import_module(f".commands.{COMMANDS.get(name, 'alone')}", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for."""
        for task, names in TASKS.items():
            found = ((name, self.get_command(ctx, name)) for name in names)
            rows = [(name, c.get_short_help_str(_WHOLE)) for name, c in found if c is not None]
            with formatter.section(task):
                formatter.write_dl(rows)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What is asked most and the commands first, then the options."""
        with formatter.section("What is asked most"):
            formatter.write_dl(ANSWERS)
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Turn a leading endpoint into ``-t ENDPOINT``, then parse as usual.

        An endpoint without a command means its overview.
        """
        if not (args or ctx.resilient_parsing):
            args = [_ALONE]
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args == ["version"]:
            args = ["--version"]
        options, words, args = self._split(ctx, args)
        if not options.targets and _has_endpoint_behind(words):
            command, behind, *others = words
            args = [*args[: len(args) - len(words)], "--target", behind, command, *others]
            options, words, args = self._split(ctx, args)
        endpoint = None
        if words and not _is_command(words[0]) and not options.targets:
            endpoint = words[0]
            args = [*args[: len(args) - len(words)], "--target", endpoint, *words[1:]]
            options, words, args = self._split(ctx, args)
        if words and not any(_TARGETS.match(word) for word in words):
            terminal.ways.command = shlex.join(words)
        if not (ctx.resilient_parsing or options.ask_for_help):
            if not _HELP.intersection(words):  # help is there whatever is in that file
                ctx.default_map = default_map(self, ctx)
            _check_words(endpoint, words, options.targets)
            if options.targets and not words:
                args = [*args, _OVERVIEW]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command, or an endpoint where none is given yet."""
        found = super().shell_complete(ctx, incomplete)
        if not Target.of(ctx).endpoints:
            found += complete_endpoints(incomplete)
        return found

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[_Options, list[str], list[str]]:
        """The group's own options, the words that follow them, and all of it.

        An option that the group does not know is the overview's, where an endpoint stands before.
        """
        try:
            given, words, params = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as error:
            at = _place_of(error.option_name, args)
            if at is None or not any(_TARGETS.match(word) for word in args[:at]):
                raise UsageError(
                    f"{error.option_name} is no option of probing itself: those of a command stand"
                    f" behind it, as in `probing COMMAND {error.option_name}`.",
                    help="`probing --help` shows both.",
                ) from None
            args = [*args[:at], _OVERVIEW, *args[at:]]
            given, words, params = self.make_parser(ctx).parse_args(list(args))
        options = _Options(
            targets=tuple(given.get("target") or ()),
            ask_for_help=any(param.is_eager for param in params),
        )
        return options, words, args


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What matters of the group's options before a command is looked for.

    Attributes:
        targets: The endpoints given by ``-t``.
        ask_for_help: Whether ``--help`` or ``--version`` is among them.
    """

    targets: tuple[str, ...]
    ask_for_help: bool


def _place_of(option: str, args: Sequence[str]) -> int | None:
    """Where an option stands among words."""
    found = (i for i, word in enumerate(args) if word.partition("=")[0] == option)
    return next(found, None)


def _is_command(word: str) -> bool:
    """Whether a word is a command, by its name or a short form of it."""
    return word in COMMANDS or word in SHORT_FORMS or word == _ALONE


def _has_endpoint_behind(words: Sequence[str]) -> bool:
    """Whether an endpoint stands behind the command that asks it, and none before."""
    if len(words) < 2 or any(_TARGETS.match(word) for word in words):
        return False
    name = SHORT_FORMS.get(words[0], words[0])
    asks = name in COMMANDS and name not in WITH_WORDS_OF_THEIR_OWN
    return asks and _IS_ENDPOINT.fullmatch(words[1]) is not None


def _check_words(endpoint: str | None, words: list[str], targets: Sequence[str]) -> None:
    """Say what is wrong with the words where the command should be.

    Args:
        endpoint: The word that was taken for the endpoint, if one was.
        words: What follows it.
        targets: All endpoints.

    Raises:
        UsageError: There is no command, or none of that name.
    """
    if "" in targets:
        raise UsageError("the endpoint is empty.", help="`probing list` shows what there is.")
    if words and _is_command(words[0]):
        return
    is_plain_word = (
        endpoint is not None
        and not _LOOKS_LIKE_ENDPOINT.fullmatch(endpoint)
        and endpoints_named(endpoint) == (endpoint,)
    )
    if endpoint is not None and is_plain_word and _nearest(endpoint):
        raise _no_such_command(endpoint)
    if words:
        raise _no_such_command(words[0])


def _nearest(word: str) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word.lower(), COMMANDS, n=1, cutoff=0.7)), None)


def _no_such_command(word: str) -> UsageError:
    near = _nearest(word)
    hint = f" Did you mean {near}?" if near else ""
    return UsageError(
        f"there is no command {word!r}.{hint}", help="`probing --help` lists the commands."
    )


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    """Print the version of the installed package, and how it records module calls."""
    if value and not ctx.resilient_parsing:
        from .._version import VERSION
        from ..ring.native import IN_C

        way = "in C" if IN_C else "in Python: the C extension is not built for this version"
        click.echo(f"probing {VERSION} (module calls are recorded {way})")
        ctx.exit()


_EPILOG = """Exit codes: 0 done, 1 the SQL or the code failed, 2 wrong usage, 3 no such process or
not reachable, 4 refused, 5 timed out, 130 interrupted, 141 the reader of the output went away.

Completion of commands, endpoints and tables: put into ~/.bashrc the line
eval "$(_PROBING_COMPLETE=bash_source probing)"; zsh_source and fish_source serve those shells.

Manual pages: `python -m probing.cli.help.manpages ~/.local/share/man`, then `man probing-query`.
"""


@click.group(
    cls=CommandGroup,
    epilog=_EPILOG,
    subcommand_metavar="[ENDPOINT] COMMAND [ARGS]...",
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@target_options
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Print the version and leave.",
)  # fmt: skip
def probing() -> None:
    """Ask a running PyTorch training where it is, why it is slow and what is in it.

    \b
    probing               the processes there are
    probing 4242          one of them on one screen
    probing 4242 doctor   what is wrong with it, and what to do
    probing -t all        all ranks of a job
    probing COMMAND -h    what a command does, with examples
    bt, ps, sql           short forms of backtrace, list and query

    ENDPOINT is a pid, host:port, [v6]:port, an http(s) URL, a socket path, rank:N,
    job:NAME/rank:N, a process name, or the run folder of a process that has ended. A pid, an
    address, rank:N or job:NAME may also stand behind the command. To ask several
    processes at once, name each with -t, or what stands for several: all, job:NAME, rank:0-7, a
    node server's host:port, @HOSTFILE, slurm:, k8s:NAME, ray:, store:HOST:PORT. A job beside
    machines (-t NODE -t job:NAME) means its ranks on these.
    """  # noqa: D301 - click's mark for lines that stay as they are
