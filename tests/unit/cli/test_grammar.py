"""What is alike on all commands: help, options, examples, and names that were taken back."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from probing.cli.group import probing
from probing.cli.help.examples import EXAMPLES
from probing.cli.main import run
from probing.cli.output import terminal
from probing.cli.target import Target
from probing.cli.tasks import COMMANDS, SHORT_FORMS, TASKS
from probing.errors import NoSuchProcess, UsageError
from tests.unit.cli.test_cli_parsing import parse

pytestmark = pytest.mark.anypython

NO_PROCESS = {"run", "serve", "mcp", "file memory-viz", "file diff", "file checkpoint"}
"""Commands that ask nobody, and so have no options of that."""
NO_ROWS = {
    *NO_PROCESS, "attach", "detach", "repl", "act", "file", "history", "top", "web", "report",
    "gateway",
}  # fmt: skip
FEW_FACTS = {
    "overview", "status", "backtrace", "stragglers", "diff", "eval", "arm", "leak", "summary",
    "history diff", "history show", "history compact", "history iceberg", "dataloaders", "fit",
    "profile", "act lr",
    "act clip", "act checkpoint", "act cleanup", "act nan-guard", "act keep-layers",
    "act skip-attention", "act run", "act undo", "export", "file checkpoint",
}  # fmt: skip
"""Commands whose answer is no list that could be cut."""
FORMER = [
    ("query", "--max-rows", "-n or --limit"),
    ("gradients", "--rows", "-n or --limit"),
    ("doctor", "--rows", "-n or --limit"),
    ("hang", "--rows", "-n or --limit"),
    ("oom", "--rows", "-n or --limit"),
    ("oom", "--number", "--seq"),
    ("memory", "--top", "-n or --limit"),
    ("labels", "--samples", "-n or --limit"),
    ("stragglers", "--last", "--steps"),
]


def _all_commands() -> Iterator[str]:
    """The words of every command, at every depth."""
    context = click.Context(probing)
    for name in COMMANDS:
        yield name
        command = probing.get_command(context, name)
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in command.commands)


ALL = tuple(_all_commands())


def options_of(words: str) -> set[str]:
    """The names of a command's options."""
    command: click.Command | None = probing
    for word in words.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    return {name for p in command.params if not getattr(p, "hidden", False) for name in p.opts}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What one command line says of printing is not in force for the next test."""
    yield
    terminal.begin()


@pytest.mark.parametrize("words", ALL)
def test_help_needs_no_endpoint(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At every depth, before the command's name and behind it, with usage and examples."""
    assert run([*words.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: probing ")
    assert f"{words} [OPTIONS]" in " ".join(shown.split())
    assert "\nExamples:\n" in shown
    assert run(["help", *words.split()]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("words", ALL)
def test_examples_are_taken(words: str) -> None:
    """Every example names commands and options that there are."""
    for line in EXAMPLES[words]:
        first, *rest = shlex.split(line, comments=True)
        assert first == "probing"
        context, command = parse(*rest)
        assert context.command is probing
        assert command.info_name in {*COMMANDS, *SHORT_FORMS}


def test_no_example_is_of_a_command_that_is_gone() -> None:
    """The examples are those of the commands."""
    assert set(EXAMPLES) == set(ALL)


@pytest.mark.parametrize("words", sorted(set(ALL) - NO_ROWS))
def test_every_answer_has_the_same_options(words: str) -> None:
    """--json, --format and -o on all; -n on all that list something."""
    has = options_of(words)
    assert {"--json", "--format", "-o", "--output"} <= has
    assert ("-n" in has and "--limit" in has) == (words not in FEW_FACTS)


@pytest.mark.parametrize("words", sorted(set(ALL) - NO_PROCESS))
def test_every_command_takes_the_common_options(words: str) -> None:
    """-t, --timeout, -v, -q and --color, wherever they stand."""
    assert {"-t", "--timeout", "-v", "-q", "--color"} <= options_of(words)


@pytest.mark.parametrize(("command", "former", "now"), FORMER)
def test_a_former_name_is_refused_with_the_new_one(
    command: str, former: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever types it reads what it is called now, and the old name is in no help."""
    assert run(["4242", command, former, "3"]) == UsageError.exit_code
    said = capsys.readouterr().err
    assert said.startswith(f"error: {former} is called {now} now.")
    assert run([command, "--help"]) == 0
    assert f"{former} " not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["-v", "-q", "--color", "always", "4242", "status"],
        ["4242", "-v", "-q", "--color", "always", "status"],
        ["4242", "status", "-v", "-q", "--color", "always"],
        ["4242", "-v", "status", "--quiet", "--color=always"],
    ],
)
def test_ways_of_printing_may_stand_in_any_place(words: list[str]) -> None:
    """Before the endpoint, before the command and behind it, they mean the same."""
    parse(*words)
    ways = terminal.ways
    assert (ways.verbose, ways.quiet, ways.color) == (True, True, "always")
    assert terminal.screen().color


def test_two_formats_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """--json beside another format is a mistake, and not decided by the place."""
    assert run(["4242", "query", "SELECT 1", "--json", "--format", "csv"]) == 2
    assert "--json and --format csv are two formats" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "style"),
    [
        ([], "text"),
        (["--json"], "json"),
        (["--format", "json"], "json"),
        (["--format", "table"], "text"),
        (["-o", "x.json"], "json"),
        (["-o", "x.txt"], "text"),
        (["-o", "x.json", "--format", "text"], "text"),
    ],
)
def test_how_an_answer_is_printed(options: list[str], style: str) -> None:
    """--format counts first, then the file's suffix; `table` and `text` are one thing."""
    _, command = parse("4242", "status", *options)
    assert command.params["style"] == style


def test_a_file_takes_its_name_once_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is written before an error is in no file; without an error all of it is."""
    path = tmp_path / "answer.txt"
    terminal.begin()
    with contextlib.suppress(UsageError):
        terminal.write_to(str(path))
        terminal.write("half")
        raise UsageError("the rest is missing.")
    assert not path.exists()
    terminal.write("whole")
    terminal.finish()
    assert path.read_text() == "half\nwhole\n"
    assert capsys.readouterr().out == ""


def test_every_command_stands_in_one_task() -> None:
    """The help lists each once, by what it is for."""
    names = [name for commands in TASKS.values() for name in commands]
    assert sorted(names) == sorted(set(names)) == sorted(COMMANDS)


@pytest.mark.parametrize(
    ("words", "who"),
    [
        (["999999998"], "999999998"),
        (["-t", "a b"], "'a b'"),
        (["-t", "1", "-t", "2"], "-t 1 -t 2"),
    ],
)
def test_a_hint_names_whom_the_command_asks(
    words: list[str], who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an error says to type can be pasted: the endpoint stands where it was typed before."""
    assert run([*words, "config", "stepz=1"]) == UsageError.exit_code
    assert f"`probing {who} config` lists the settings" in capsys.readouterr().err


def test_a_hint_without_an_endpoint_says_where_it_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody was named, so nobody is made up."""
    assert run(["stragglers"]) == UsageError.exit_code
    assert "`probing ENDPOINT stragglers`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "endpoint", "command"),
    [
        (["query", "4242", "SELECT 1"], "4242", "query"),
        (["bt", "node1:8080"], "node1:8080", "bt"),
        (["act", "job:gpt", "lr", "0.1"], "job:gpt", "act"),
    ],
)
def test_an_endpoint_may_stand_behind_the_command(
    words: list[str], endpoint: str, command: str
) -> None:
    """The same as before it, for every command that asks one."""
    _, found = parse(*words)
    assert Target.of(found).endpoints == (endpoint,)
    assert found.info_name == command


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["query", "@slow-steps"], "query needs an endpoint"),
        (["query", "SELECT 1 AS a:b"], "query needs an endpoint"),
        (["attach"], "attach needs an endpoint: `probing attach PID`."),
        (["--json"], "--json is no option of probing itself"),
        (["1", "--timeout", "abc", "status"], "'--timeout': 'abc' is not a number."),
        (["1", "query", "-n", "x", "SELECT 1"], "'x' is not a whole number."),
        (["1", "query", "@slow-steps", "-p", "factor=abc"], "the parameter factor is a number"),
    ],
)
def test_a_mistake_is_told_in_plain_words(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not in the names of types, and with the usage that the command has."""
    assert run(words) == UsageError.exit_code
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_short_word_is_like_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It is a process's name then; a folder that is not there is no process, too."""
    for word in ("foo", "/nowhere/at/all"):
        assert run([word]) == NoSuchProcess.exit_code
        assert "there is no process" in capsys.readouterr().err
