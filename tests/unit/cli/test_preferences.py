"""The user's own file: names of endpoints, defaults of options, and what comes before them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem

from probing.cli import main, preferences
from probing.cli.commands import profile
from probing.cli.completion import complete_endpoints
from probing.cli.group import probing as cli
from probing.cli.output import terminal
from probing.cli.reports import profiling
from probing.cli.target import Target
from probing.errors import UsageError
from probing.history.stores.bucket import _usual_spool

pytestmark = pytest.mark.anypython

Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Puts a text into the file that commands read."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    for name in ("NO_COLOR", "PROBING_TOKEN", "PROBING_TLS_CA", "PROBING_TLS_FINGERPRINT"):
        monkeypatch.delenv(name, raising=False)

    def put(text: str) -> None:
        (tmp_path / "probing.toml").write_text(text, "utf-8")
        monkeypatch.setattr(preferences, "_read", {})

    monkeypatch.setattr(preferences, "_read", {})
    terminal.begin()
    return put


def parse(*words: str) -> click.Context:
    """The context of the command in a command line that is not run."""
    terminal.begin()
    context = cli.make_context("probing", list(words))
    name, command, rest = cli.resolve_command(context, [*context._protected_args, *context.args])
    assert command is not None
    return command.make_context(name, rest, parent=context)


def complaint(write: Write, text: str, capfd: pytest.CaptureFixture[str]) -> str:
    """The first line that a command says of a file with a mistake in it."""
    write(text)
    assert main.run(["list"]) == UsageError.exit_code
    return capfd.readouterr().err.splitlines()[0]


def test_without_a_file_nothing_changes(write: Write) -> None:
    """Nobody needs one."""
    assert parse("4242", "query", "x").params["limit"] is None
    assert Target.of(parse("job", "hang")).endpoints == ("job",)


def test_a_name_stands_for_its_endpoints(write: Write) -> None:
    """First or after -t, beside others; hints have it as it was typed."""
    write('[endpoints]\njob = ["node1:8080", "node2:8080"]\nlab = "gpu7:9741"\n')
    for words in (["job", "hang"], ["-t", "job", "hang"], ["hang", "-t", "job"]):
        target = Target.of(parse(*words))
        assert target.endpoints == ("node1:8080", "node2:8080")
        assert target.words == "-t job"
        assert terminal.ways.asked == "job"
    assert Target.of(parse("-t", "lab", "-t", "7", "hang")).endpoints == ("gpu7:9741", "7")
    shown = [(item.value, item.help) for item in complete_endpoints("j")]
    assert shown == [("job", "node1:8080 node2:8080")]
    assert all(isinstance(item, CompletionItem) for item in complete_endpoints(""))


def test_a_name_stands_for_a_run_and_for_a_process(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the argument of `diff`, `attach` and `detach`, too."""
    write('[endpoints]\nold = "/no/such/run"\nnew = "999999999"\n')
    for words in (["diff", "old", "new"], ["attach", "new"], ["detach", "new"]):
        assert main.run(words) != 0
        told = capfd.readouterr().err
        assert ("/no/such/run" if "old" in words else "999999999") in told
        assert "called" not in told


def test_defaults_are_of_all_commands_or_one(write: Write) -> None:
    """Short forms of a command have its defaults, other commands have not."""
    write('[defaults]\ntimeout = 7\ncolor = "never"\n[defaults.query]\nlimit = 5\n')
    for name in ("query", "sql"):
        context = parse("4242", name, "x")
        assert context.params["limit"] == 5
        assert Target.of(context).timeout_s == 7
        assert terminal.ways.color == "never"
    assert parse("4242", "tables").params["limit"] is None


@pytest.mark.parametrize("section", ["defaults", "defaults.query"])
def test_the_command_line_comes_first(section: str, write: Write) -> None:
    """Before the command and after it, and by whatever option it says so."""
    write(f'[{section}]\ntimeout = 7\ncolor = "never"\n')
    for words in (
        ["--timeout", "3", "--color", "always", "4242", "query", "x"],
        ["4242", "query", "x", "--timeout", "3", "--color", "always"],
    ):
        assert Target.of(parse(*words)).timeout_s == 3
        assert terminal.ways.color == "always"
    assert Target.of(parse("4242", "query", "x")).timeout_s == 7


def test_formats_of_the_file_give_way(write: Write) -> None:
    """To --format, to --json, and to the suffix of -o."""
    write('[defaults.memory]\nformat = "markdown"\n[defaults.status]\nformat = "json"\n')
    assert parse("4242", "memory").params["style"] == "markdown"
    assert parse("4242", "memory", "--json").params["style"] == "json"
    assert parse("4242", "memory", "-o", "x.json").params["style"] == "json"
    assert parse("4242", "status").params["style"] == "json"
    assert parse("4242", "status", "--format", "table").params["style"] == "text"


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ([], "svg"),
        (["--json"], "json"),
        (["-o", "page.html"], "flamegraph.html"),
        (["-o", "page.html", "--format", "table"], "table"),
    ],
)
def test_the_format_of_a_profile_gives_way(
    words: list[str], form: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of rows does."""
    write('[defaults.profile]\nformat = "svg"\n')
    chosen: list[str] = []

    class Shown:
        notes = ()

        def render(self, form: str, _: object) -> str:
            chosen.append(form)
            return ""

    monkeypatch.setattr(profiling, "ask_for_steps", lambda *_: Shown())
    monkeypatch.setattr(profile, "write_file", lambda *_: None)
    assert main.run([str(os.getpid()), "profile", *words]) == 0
    assert chosen == [form]


def test_the_environment_comes_before_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A variable that says the same wins."""
    token = tmp_path / "token"
    token.write_text("of the file")
    write(f'[defaults]\ncolor = "always"\ntoken-file = "{token}"\n')
    context = parse("4242", "hang")
    assert (terminal.ways.color, Target.of(context).token) == ("always", "of the file")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PROBING_TOKEN", "of the environment")
    context = parse("4242", "hang")
    assert (terminal.ways.color, Target.of(context).token) == ("auto", None)


MISTAKES = {
    "[defaults\n": (1, "this is not TOML"),
    "[endpoints]\na = 1\nb = = 2\n": (3, "this is not TOML"),
    '[endpoints]\n\nlist = "x"\n': (3, "'list' has a meaning already"),
    '[endpoints]\n"7" = "x"\n': (2, "the name '7' has to begin with a letter"),
    "[endpoints]\njob = []\n": (2, "job has to be an endpoint, or a list of them"),
    "[endpoints]\njob = [1]\n": (2, "job has to be an endpoint, or a list of them"),
    "x = 1\n": (1, "'x' is neither [endpoints] nor [defaults]"),
    "[other]\nx = 1\n": (1, "'other' is neither [endpoints] nor [defaults]"),
    "\n[defaults]\ntimeot = 1\n": (3, "'timeot' is no option of every command"),
    "[defaults.qury]\nlimit = 1\n": (1, "there is no command 'qury'"),
    "[defaults.query]\nlimit = -1\n": (2, "limit: -1 is not in the range x>=0"),
    "[defaults.query]\n# limit\nlimit = [1]\n": (3, "limit has to be a number or a text"),
    '[defaults]\nverbose = "yes"\n': (2, "verbose has to be true or false"),
    '[defaults.memory]\nformat = "yaml"\n': (2, "format: 'yaml' is not one of 'table'"),
    "[defaults.memory]\ntop = 3\n": (2, "'top' is no option of memory"),
    '[defaults]\ntarget = "x"\n': (2, "'target' is no option of every command"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_with_its_line(
    text: str, write: Write, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One sentence, exit code 2, and nothing runs."""
    line, what = MISTAKES[text]
    said = complaint(write, text, capfd)
    assert said.startswith(f"error: {tmp_path}/probing.toml, line {line}: ")
    assert what in said


def test_help_needs_no_file(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    """Who has made a mistake in it can still read how it is written."""
    write("[defaults\n")
    assert main.run(["--help"]) == 0
    assert main.run(["list", "--help"]) == 0
    assert capfd.readouterr().err == ""


def test_what_cannot_be_read_is_a_sentence(
    write: Write, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Not text, or no file."""
    (tmp_path / "probing.toml").write_bytes(b"\xff\xfe")
    assert main.run(["list"]) == 2
    assert "probing.toml: it is not UTF-8 text." in capfd.readouterr().err
    (tmp_path / "probing.toml").unlink()
    (tmp_path / "probing.toml").mkdir()
    assert main.run(["list"]) == 2
    assert "probing.toml: Is a directory." in capfd.readouterr().err


def test_a_default_is_in_force(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    """A whole command that runs with what the file says."""
    write('[defaults.list]\nformat = "json"\n')
    assert main.run(["list"]) == 0
    assert json.loads(capfd.readouterr().out) == []


def test_a_user_without_a_home_has_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As whoever a container runs under a number of its own; what needs a folder says so."""

    def nobody(_: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "PROBING_HISTORY_SPOOL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setenv("PROBING_HOME", str(tmp_path))
    assert main.run(["list"]) == 0
    assert "error" not in capsys.readouterr().err
    with pytest.raises(UsageError, match="no home folder"):
        _usual_spool({})
