"""What the words on the command line mean: endpoints, commands, texts, formats, completion."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest

from probing import __version__
from probing.cli.ask.syntax import find_syntax_error
from probing.cli.attending import attend
from probing.cli.commands import doctor
from probing.cli.commands.tables import find_table
from probing.cli.completion import sql_words
from probing.cli.group import probing
from probing.cli.main import run
from probing.cli.output import terminal
from probing.cli.output.formats import FORMATS, choose_format
from probing.cli.target import Target
from probing.cli.tasks import COMMANDS
from probing.cli.time_limit import within
from probing.client.connecting import connect
from probing.cluster.job.interruption import ends_the_wait
from probing.errors import BadSetting, NotProbing, UsageError
from probing.linux import process
from probing.rundir.folders import RunDirectory
from probing.settings import find
from probing.tables import TABLES
from tests.harness.targets import clean_env
from tests.unit.vocabulary.test_run_folders import card_of

pytestmark = pytest.mark.anypython


def parse(*words: str) -> tuple[click.Context, click.Context]:
    """The contexts of the group and of the command that the words name."""
    group = probing.make_context("probing", list(words))
    private = "_protected_args" if hasattr(group, "_protected_args") else "protected_args"
    protected: list[str] = getattr(group, private)
    name, *rest = protected + group.args
    command = probing.get_command(group, name)
    assert command is not None
    return group, command.make_context(name, rest, parent=group)


def fault(*words: str) -> str:
    """The sentence with which the words are refused."""
    with pytest.raises((UsageError, click.UsageError)) as caught:
        parse(*words)
    return str(getattr(caught.value, "message", ""))


@pytest.mark.parametrize(
    "words",
    [
        ["4242", "query", "SELECT 1"],
        ["-t", "4242", "query", "SELECT 1"],
        ["--target", "4242", "query", "SELECT 1"],
        ["query", "-t", "4242", "SELECT 1"],
        ["query", "SELECT 1", "--target=4242"],
    ],
)
def test_endpoint_may_stand_in_any_place(words: list[str]) -> None:
    """The endpoint as a word, and as an option before or after the command, is one thing."""
    _, command = parse(*words)
    assert Target.of(command).endpoints == ("4242",)
    assert command.params["sql"] == "SELECT 1"


@pytest.mark.parametrize(
    "words",
    [
        ["--timeout", "5", "x", "backtrace"],
        ["x", "--timeout", "5", "backtrace"],
        ["x", "backtrace", "--timeout", "5"],
        ["--timeout", "9", "x", "backtrace", "--timeout", "5"],
    ],
)
def test_time_limit_may_stand_in_any_place(words: list[str]) -> None:
    """--timeout is taken before and after the command; the last one counts."""
    _, command = parse(*words)
    target = Target.of(command)
    assert (target.endpoints, target.timeout_s) == (("x",), 5.0)


def test_several_endpoints_keep_their_order() -> None:
    """Endpoints are asked in the order in which they were named, wherever they stand."""
    _, command = parse("-t", "node1:8080", "-t", "[::1]:8", "query", "-t", "rank:0", "SELECT 1")
    assert Target.of(command).endpoints == ("node1:8080", "[::1]:8", "rank:0")


def test_a_process_may_be_called_like_a_mistyped_command() -> None:
    """A word before a real command is the endpoint, however it looks."""
    _, command = parse("evals", "backtrace")
    assert Target.of(command).endpoints == ("evals",)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["qurey", "4242"], "there is no command 'qurey'. Did you mean query?"),
        (["qurey"], "there is no command 'qurey'. Did you mean query?"),
        (["qurey", "4242", "SELECT 1"], "there is no command 'qurey'. Did you mean query?"),
        (["4242", "qery", "SELECT 1"], "there is no command 'qery'. Did you mean query?"),
        (["host:80", "backtrase"], "there is no command 'backtrase'. Did you mean backtrace?"),
        (["-t", "x", "evil", "1"], "there is no command 'evil'. Did you mean eval?"),
        (["train", "zzz"], "there is no command 'zzz'."),
        (["", "backtrace"], "the endpoint is empty."),
        (["-t", "", "backtrace"], "the endpoint is empty."),
    ],
)
def test_wrong_words_get_one_sentence(words: list[str], sentence: str) -> None:
    """A mistyped or missing command is named, with the nearest one there is."""
    assert fault(*words) == sentence


@pytest.mark.parametrize(
    ("words", "endpoints"),
    [
        (["4242"], ("4242",)),
        (["-t", "a:1", "--timeout", "3"], ("a:1",)),
        (["4242", "--format", "json"], ("4242",)),
        (["-t", "4242", "--timeout", "3", "--format=json"], ("4242",)),
        (["-t", "all"], ("all",)),
        (["zzz"], ("zzz",)),
    ],
)
def test_an_endpoint_alone_means_its_overview(words: list[str], endpoints: tuple[str, ...]) -> None:
    """Whatever options stand behind it, known to the group or to the overview alone."""
    _, command = parse(*words)
    assert command.info_name == "overview"
    assert Target.of(command).endpoints == endpoints


def test_an_option_of_nobody_is_refused() -> None:
    """Without an endpoint, too, and with one by the command that it was meant for."""
    said = "--formt is no option of probing itself: those of a command stand behind it, as in"
    assert fault("--formt", "json").startswith(said)
    assert fault("4242", "--formt", "json").startswith("No such option '--formt'.")


@pytest.mark.parametrize(
    ("short", "long"), [("bt", "backtrace"), ("ps", "list"), ("sql", "query"), ("ls", "list")]
)
def test_short_forms_are_the_commands(short: str, long: str) -> None:
    """A short form is the command itself, so its help and its options are the same."""
    found = probing.get_command(click.Context(probing), short)
    assert found is probing.get_command(click.Context(probing), long)


@pytest.mark.parametrize("limit", ["inf", "1e400", "1e300", "1e15"])
def test_a_time_limit_without_an_end_is_one(limit: str) -> None:
    """What no timer of the kernel can count to is a very long time, and no internal error."""
    _, command = parse("--timeout", limit, "x", "backtrace")
    with within(Target.of(command).timeout_s or 0, grace_s=5.0):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 86_400


@pytest.mark.parametrize("limit", ["0", "-1", "soon", "nan"])
def test_time_limit_must_be_positive(limit: str) -> None:
    """A time limit that no answer can keep is refused."""
    assert "--timeout" not in fault("x", "backtrace", "--timeout", limit)


def test_text_may_begin_with_dashes() -> None:
    """SQL that opens with a comment is no option, with options before it and after it."""
    sql = "-- slowest\nSELECT 1"
    _, command = parse("4242", "query", "--format", "csv", sql, "-n", "3")
    assert command.params["sql"] == sql
    assert (command.params["given"], command.params["limit"]) == ("csv", 3)


@pytest.mark.parametrize(
    ("words", "listen", "rest"),
    [
        (["train.py", "--lr", "1"], None, ("train.py", "--lr", "1")),
        (["--listen", "h:1", "train.py"], "h:1", ("train.py",)),
        (["--listen=h:1", "train.py", "--listen", "x"], "h:1", ("train.py", "--listen", "x")),
        (["-m", "pkg.train", "--listen", "x"], None, ("-m", "pkg.train", "--listen", "x")),
        (["train.py", "--help"], None, ("train.py", "--help")),
        (["train.py", "--", "-t", "x"], None, ("train.py", "--", "-t", "x")),
    ],
)
def test_run_leaves_the_script_its_arguments(
    words: list[str], listen: str | None, rest: tuple[str, ...]
) -> None:
    """Everything from the script's name on belongs to the script, whatever it is called."""
    _, command = parse("run", *words)
    assert (command.params["listen"], command.params["words"]) == (listen, rest)


@pytest.mark.parametrize(
    ("given", "output", "is_terminal", "chosen"),
    [
        (None, None, True, "table"),
        (None, None, False, "table"),
        ("csv", None, True, "csv"),
        ("arrow", None, False, "arrow"),
        (None, "a.PARQUET", True, "parquet"),
        (None, "dir.x/a.ndjson", False, "jsonl"),
        ("json", "a.csv", True, "json"),
        *((None, f"x{suffix}", True, form) for form, ends in FORMATS.items() for suffix in ends),
    ],
)
def test_format_is_chosen(
    given: str | None, output: str | None, is_terminal: bool, chosen: str
) -> None:
    """--format counts first, then the file's suffix, then whether a person looks."""
    assert choose_format(given, output, is_terminal=is_terminal) == chosen


@pytest.mark.parametrize(
    ("given", "output", "word"),
    [("arrow", None, "terminal"), ("parquet", None, "terminal"), (None, "answer", "--format")],
)
def test_format_is_refused(given: str | None, output: str | None, word: str) -> None:
    """Binary data never reaches a terminal, and a format is never guessed."""
    with pytest.raises(UsageError) as caught:
        choose_format(given, output, is_terminal=True)
    assert word in f"{caught.value.message} {caught.value.help}"


def test_table_is_found_by_either_name() -> None:
    """A table answers to its name with the schema and without."""
    for table in TABLES:
        assert find_table(table.name) is find_table(table.full_name) is table
    with pytest.raises(UsageError, match=r"Did you mean python\.torch_trace\?"):
        find_table("python.torch_trac")


@pytest.mark.parametrize(
    ("source", "sentence", "excerpt"),
    [
        ("x = 1\ny = = 2", "line 2: invalid syntax", "y = = 2\n    ^"),
        ("print('a'", "line 1: '(' was never closed", "print('a'\n     ^"),
    ],
)
def test_syntax_error_has_its_place(source: str, sentence: str, excerpt: str) -> None:
    """Code that cannot be parsed is refused with the line and a caret."""
    assert find_syntax_error(source) == (sentence, excerpt)


@pytest.mark.parametrize("source", ["1\x00", "(" * 5000, "-" * 100_000 + "1"])
def test_hopeless_code_gets_a_sentence(source: str) -> None:
    """Code that breaks the parser itself is a sentence as well."""
    found = find_syntax_error(source)
    assert found is not None
    assert found[0]


@pytest.mark.parametrize("source", ["", "x", "'\\d'", "def f():\n  return 1\nf()", "é = 1"])
def test_good_code_passes(source: str) -> None:
    """Code that Python takes is not refused, and warns nobody."""
    assert find_syntax_error(source) is None


HEAVY = {"aiohttp", "duckdb", "numpy", "pyarrow", "rich", "torch"}
HELPS = ("--help", *(f"{name} --help" for name in COMMANDS))
_LOADED = """
import json, os, sys
from probing.cli.main import run
for line in sys.argv[1:]:
    if not os.fork():
        run(line.split())
        print(json.dumps([line, sorted(sys.modules)]), file=sys.stderr, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, line
"""


@pytest.fixture(scope="module")
def loaded_by() -> dict[str, set[str]]:
    """What each command line for help has imported when it ends.

    Each is a fork of a process that has imported what they have in common, and so sees no other.
    """
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, *HELPS],
        env=clean_env(Path("/nonexistent")),
        capture_output=True,
        text=True,
        check=True,
    )
    return {line: set(names) for line, names in map(json.loads, done.stderr.splitlines())}


@pytest.mark.parametrize("line", HELPS)
def test_help_imports_nothing_heavy(line: str, loaded_by: dict[str, set[str]]) -> None:
    """Help is shown without a library that takes longer to import than to read."""
    assert "click" in loaded_by[line]
    assert HEAVY & loaded_by[line] == set()


def complete(line: str, home: Path) -> list[str]:
    """What the shell is offered for the last word of a line."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "probing"],
        env={
            **clean_env(home),
            "_PROBING_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert not HEAVY & imported
    return [row.partition(",")[2] for row in done.stdout.splitlines()]


@pytest.mark.slow
def test_shell_completes(tmp_path: Path) -> None:
    """Commands, running processes, tables, settings and formats are offered, where they fit."""
    directory = RunDirectory(tmp_path / "home")
    pid, started = os.getpid(), process.start_time(os.getpid())
    assert started is not None
    directory.create_folder(pid, started)
    directory.create_folder(pid, started + 1)  # ended: the pid is used again
    home = directory.path
    assert complete("probing ", home) == [*COMMANDS, str(pid)]
    assert complete(f"probing {str(pid)[:2]}", home) == [str(pid)]
    assert complete("probing -t ", home) == [str(pid), "all"]
    assert complete(f"probing {pid} b", home) == ["backtrace"]
    assert complete(f"probing {pid} tables torch", home) == ["torch_trace"]
    assert complete(f"probing {pid} tables python.st", home) == ["python.steps"]
    assert complete(f"probing {pid} tables probing.o", home) == ["probing.overhead"]
    assert complete(f"probing {pid} query --format mark", home) == ["markdown"]
    assert complete(f"probing {pid} config recor", home) == ["recording="]
    assert complete(f"probing {pid} query @slow-", home) == ["@slow-steps"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT step FROM st", ["stalls", "steps"]),
        ("select * from python.ste", ["python.steps"]),
        ("SELECT data_w", ["data_wait_s"]),
        ("FROM steps SELECT grad", ["grad_norm", "gradient_sync_s", "gradients_s"]),
        ("FROM steps WHERE los", ["loss", "loss_finite", "loss_s"]),
        ("FROM steps ORD", ["ORDER"]),
        ("from steps ord", ["order"]),
        ("SELECT med", ["median"]),
        ("SELECT 'st", []),
        ("SELECT ", []),
    ],
)
def test_words_of_sql_are_completed(text: str, words: list[str]) -> None:
    """Tables after FROM, columns of the tables that are named, keywords as they are written."""
    found = {text[:start] + word for start, word in sql_words(text)}
    assert {text[: text.rfind(" ") + 1] + word for word in words} <= found
    assert bool(found) is bool(words)
    assert all(word.startswith(text) for word in found)


@pytest.mark.slow
def test_ranks_are_completed_in_bash(tmp_path: Path) -> None:
    """Bash parts a word at its colon, and puts what comes in the place of the last part alone."""
    directory = RunDirectory(tmp_path / "home")
    pid, started = os.getpid(), process.start_time(os.getpid())
    assert started is not None
    folder = directory.create_folder(pid, started)
    folder.write_card(card_of(folder, rank=3, job="night"))
    home = directory.path
    assert complete("probing ra", home) == ["rank:3"]
    assert complete("probing rank :", home) == ["3"]
    assert complete("probing rank : 3 back", home) == ["backtrace"]
    assert complete("probing -t job :", home) == ["night", "night/rank:3"]
    whole = complete("probing -t ", home)
    assert whole == [str(pid), "all", "rank:3", "job:night", "job:night/rank:3"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["4242", "query", "SELECT", "1"], "query takes its text as one argument, and '1' is left"),
        (["4242", "eval", "1", "+", "1"], 'put all of it in quotes, `probing 4242 eval "..."`'),
        (["list", "4242"], "list takes no further argument, but '4242' was given."),
        (["localhost", "status"], "a host needs its port, as in localhost:9741"),
        (["node1.example.com", "status"], "a host needs its port, as in node1.example.com:9741"),
        (["train.py", "status"], "there is no process called 'train.py'"),
        (["rank:5", "status"], "there is no process of rank 5 on this machine, and no record"),
        (["-t", "rank:5", "status"], "there is no process of rank 5 on this machine, and no"),
    ],
)
def test_what_is_easily_forgotten_is_told(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Quotes around a text, the port of a host, an option's name: each has its own sentence."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path))
    assert run(words) in (2, 3)
    assert sentence in capsys.readouterr().err


def test_a_server_without_tls_is_told_apart() -> None:
    """An https address of something that speaks plain HTTP: the sentence names the other scheme."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(NotProbing, match="does not speak TLS; it may be reached without"):
            connect(f"https://127.0.0.1:{server.server_address[1]}").status()
        server.shutdown()


def test_a_misspelt_setting_is_put_right() -> None:
    """The error names the setting that is spelt most like it."""
    with pytest.raises(BadSetting, match="no such setting; the nearest is keep_hours"):
        find("keep_hour")


@pytest.mark.parametrize(("group", "some"), [("act", "cleanup"), ("file", "diff")])
def test_a_group_without_a_command_names_its_commands(
    group: str, some: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence with the commands there are, not a page of help that calls itself an error."""
    words = ["1", group] if group == "act" else [group]
    assert run(words) == UsageError.exit_code
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {group} needs one of checkpoint, ")
    assert some in first
    assert second == f"`probing {group} --help` shows how it is used."


def test_the_line_of_memory_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that asks for JSON is refused with a way out, and is not handed text."""
    assert run(["1", "memory", "--line", "--format", "json"]) == UsageError.exit_code
    said = capsys.readouterr().err
    assert "--line prints text, and no json" in said
    assert "query --format json" in said


@pytest.mark.parametrize(
    "words",
    [
        ["memory", "--line", "--watch", "1"],
        ["doctor", "--watch"],
        ["eval", "--every", "5", "1"],
    ],
    ids=lambda words: words[0],
)
def test_what_goes_on_writes_no_file(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that appears once it is whole never would."""
    assert run(["1", *words, "-o", str(tmp_path / "all.txt")]) == UsageError.exit_code
    assert "-o writes one answer, and --" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("1 doctor --webhook notaurl", "--webhook needs --watch"),
        ("1 doctor --run true", "--run needs --watch"),
        ("1 doctor --every 5", "--every needs --watch"),
        ("1 doctor --watch 10", "how often it looks is --every 10"),
        ("-t all doctor --watch 2.5", "how often it looks is --every 2.5"),
        ("list --job -n 3", "no use for --limit"),
        ("list --job x --dead", "no use for --dead"),
        ("list --all --job", "no use for --all"),
        ("history runs . -t 4242", "history runs takes no endpoint, but 4242"),
        ("history show . x -t 4242", "history show takes no endpoint"),
        ("history diff . x y -t 4242", "history diff takes no endpoint"),
        ("history compact . -t 4242", "history compact takes no endpoint"),
        ("history iceberg . -t 4242", "history iceberg takes no endpoint"),
        ("history query . FROM -t 4242", "history query takes no endpoint"),
        ("1 profile --sampling 9 --steps 3", "--steps is of torch.profiler"),
        ("1 profile --seconds 3", "--seconds needs --sampling"),
        ("1 profile --idle", "--idle needs --sampling"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody waits for a message that is never sent."""
    assert run(words.split()) == UsageError.exit_code
    assert says in capsys.readouterr().err


def test_a_file_that_an_interruption_leaves_unwritten_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody is told of a part that is nowhere."""
    for output, said in ((None, "this is a part"), ("g.txt", "g.txt is not written")):
        terminal.begin()
        terminal.ways.output = output
        with pytest.raises(KeyboardInterrupt):
            attend(ends_the_wait, "asking", in_parts=True)
        assert said in capsys.readouterr().err
    terminal.begin()


@pytest.mark.parametrize(("in_c", "way"), [(object(), "in C"), (None, "in Python")])
def test_the_version_says_how_calls_are_recorded(
    in_c: object, way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The C extension is optional, and so whoever asks for the version is told of it."""
    monkeypatch.setattr("probing.ring.native.IN_C", in_c)
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith(
        f"probing {__version__} (module calls are recorded {way}"
    )


def test_commands_of_findings_quote_what_the_user_has_typed() -> None:
    """A job or a folder may have a space in its name."""
    assert doctor._asked(("77",)) == "77"
    assert doctor._asked(("job:my run", "7")) == "-t 'job:my run' -t 7"
