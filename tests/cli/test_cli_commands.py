"""The commands against a real training: what is printed where, and with which exit code."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from probing import connect
from probing.linux.process import facts as process_facts
from probing.settings import SETTINGS
from probing.stacks.work_done import children_of
from probing.tables import TABLES
from tests.harness.evals import NOT_RUN, patience
from tests.harness.sql_attacks import UNSTOPPABLE
from tests.harness.targets import DEADLINE_S, Target, clean_env, run_command, stop, wait_until
from tests.harness.terminals import without_waiting

ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000) b"


def ask(training: Target, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the training; whatever comes of it, no traceback of ours is shown."""
    done = training.run(str(training.pid), *words)
    assert "probing/cli" not in done.stderr
    return done


def start(training: Target, *words: str, **streams: int | bool) -> subprocess.Popen[bytes]:
    """Start a command and let it run."""
    return subprocess.Popen(
        [sys.executable, "-m", "probing", *words],
        env=training.env,
        cwd=training.cwd,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},  # type: ignore[call-overload]
    )


def test_list_shows_the_training(training: Target) -> None:
    """The list names the process, its state and its step, for people and for programs."""

    def look() -> dict[str, Any] | None:  # one that answers late is told as such
        listed = json.loads(training.run("list", "--format", "json").stdout)
        (found,) = (one for one in listed if one["pid"] == training.pid)
        return found if found["state"] == "training" else None

    def line() -> str:
        rows = training.run("list").stdout.splitlines()
        return next(row for row in rows if str(training.pid) in row)

    found = wait_until(look, "a training")
    wait_until(lambda: "training" in line(), "a training")
    assert "train_gpt.py" in line()
    assert found["step"] >= 3
    assert found["folder"] == str(training.folder.path)


def test_a_training_on_the_processor_says_nothing_of_devices(training: Target) -> None:
    """No line, and NULL for programs."""
    assert "device cuda" not in (shown := ask(training, "status").stdout)
    assert "on the device" not in shown
    assert json.loads(ask(training, "status", "--format", "json").stdout)["device"] is None


def test_an_empty_list_says_how_to_fill_it(tmp_path: Path) -> None:
    """Where nothing runs, stdout stays empty and stderr says how to start something."""
    done = subprocess.run(
        [sys.executable, "-m", "probing", "list"],
        env=clean_env(tmp_path / "none"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert "probing run" in done.stderr


def test_a_python_without_arguments_is_listed(tmp_path: Path) -> None:
    """`list --all` shows an interpreter that reads its program from a pipe, as any other."""
    with subprocess.Popen([sys.executable], stdin=subprocess.PIPE) as bare:
        try:
            done = run_command(
                "list", "--all", "--format", "json", cwd=tmp_path, env=clean_env(tmp_path / "home")
            )
            assert done.returncode == 0, done.stderr
            assert bare.pid in [entry["pid"] for entry in json.loads(done.stdout)]
        finally:
            bare.kill()


def test_workers_of_a_data_loader_are_listed_as_such(training: Target) -> None:
    """`list --all` names whose they are; nothing says that an agent should be put into them."""
    done = training.run("list", "--all", "--json")
    own = [entry for entry in json.loads(done.stdout) if entry["parent"] == training.pid]
    assert own
    assert {entry["role"] for entry in own} <= {"worker", "fork"}  # by torch's version
    shown = training.run("list", "--all").stdout
    lines = [line for line in shown.splitlines() if f"{own[0]['role']} of {training.pid}" in line]
    assert any(f" {own[0]['pid']} " in f" {line} " and " yes  yes " not in line for line in lines)


def test_backtrace_reads_like_a_traceback(training: Target) -> None:
    """The main thread comes last, and its innermost frame, with the source lines."""
    takers = ("the agent", "py-spy from outside")  # which one, depends on the machine's load

    def whole_stack() -> str | None:
        done = ask(training, "backtrace")
        head, *threads = done.stdout.split("\n\n")
        assert done.returncode == 0
        told = head.splitlines()[0].removesuffix(" (-v unfolds libraries and idle threads)")
        assert told in {f"process {training.pid}, taken by {t}" for t in takers}
        main = threads[-1] if threads else ""
        # Stacks of a running process that are read from outside may be torn.
        if '"MainThread" (main' not in main or ", in <module>\n    trainer.train(" not in main:
            return None
        assert main.startswith(f"Thread {training.pid} ")
        return main

    wait_until(whole_stack, "a stack from the script's own code on")


def test_backtrace_as_json(training: Target) -> None:
    """Programs get the same stacks with names for their parts."""
    found = json.loads(ask(training, "backtrace", "--format", "json").stdout)
    assert found["pid"] == training.pid
    assert found["threads"][0]["is_main"]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (None, "x     s\n───────\n1  NULL\n"),
        ("jsonl", '{"x":1,"s":null}\n'),
        ("json", '[\n{"x":1,"s":null}\n]\n'),
        ("csv", "x,s\n1,\n"),
        ("markdown", "| x | s |\n| ---: | ---: |\n| 1 |  |\n"),
        ("table", "x     s\n───────\n1  NULL\n"),
    ],
)
def test_query_formats(training: Target, form: str | None, text: str) -> None:
    """A piped answer is a table; every other text format is there when asked for."""
    options = [] if form is None else ["--format", form]
    done = ask(training, "query", "SELECT 1 AS x, NULL::INT AS s", *options)
    assert (done.stdout, done.stderr, done.returncode) == (text, "", 0)


def test_query_to_arrow(training: Target) -> None:
    """Arrow on stdout is a stream that pyarrow reads."""
    process = start(training, str(training.pid), "query", "SELECT 42 AS x", "--format", "arrow")
    data, _ = process.communicate(timeout=DEADLINE_S)
    assert pa.ipc.open_stream(data).read_all().to_pylist() == [{"x": 42}]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv", "a.md", "a.txt"])
def test_query_to_a_text_file(training: Target, tmp_path: Path, name: str) -> None:
    """A file gets the format of its suffix, whole, and stdout gets nothing."""
    path = tmp_path / name
    done = ask(training, "query", "SELECT 'here' AS x", "-o", str(path))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert "here" in path.read_text("utf-8")
    assert os.listdir(tmp_path) == [name]


def test_query_to_a_binary_file(training: Target, tmp_path: Path) -> None:
    """Parquet and Arrow files are read by pyarrow."""
    readers: dict[str, Callable[[bytes], pa.Table]] = {
        "a.parquet": lambda data: pq.read_table(io.BytesIO(data)),
        "a.arrow": lambda data: pa.ipc.open_file(data).read_all(),
        "a.arrows": lambda data: pa.ipc.open_stream(data).read_all(),
    }
    for name, read in readers.items():
        ask(training, "query", "SELECT 42 AS x", "-o", str(tmp_path / name))
        assert read((tmp_path / name).read_bytes()).to_pylist() == [{"x": 42}]


def test_a_failed_query_leaves_no_file(training: Target, tmp_path: Path) -> None:
    """An answer that fails leaves the older file as it was."""
    path = tmp_path / "a.csv"
    path.write_text("older")
    done = ask(training, "query", "SELECT error('no') FROM range(9)", "-o", str(path))
    assert done.returncode == 1
    assert path.read_text() == "older"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_sql_from_file_and_stdin(training: Target, tmp_path: Path) -> None:
    """The statement may come from a file and from standard input."""
    path = tmp_path / "q.sql"
    path.write_text("-- a comment\nSELECT 7 AS x")
    assert ask(training, "query", "--format=jsonl", "-f", str(path)).stdout == '{"x":7}\n'
    done = training.run(str(training.pid), "query", "--format=jsonl", "-", input="SELECT 8 AS x")
    assert done.stdout == '{"x":8}\n'
    assert ask(training, "query", "--format=jsonl", "-- first\nSELECT 9 AS x").stdout == '{"x":9}\n'


def test_max_rows_limits_machine_formats(training: Target) -> None:
    """A limit on rows is kept, and what is missing is said on stderr."""
    done = ask(training, "query", "--format=jsonl", "SELECT * FROM range(10)", "-n", "2")
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr.startswith("note: ")
    assert done.returncode == 0


def test_empty_answer_has_columns(training: Target) -> None:
    """No rows are an answer: columns, and exit code 0."""
    done = ask(training, "query", "SELECT * FROM python.steps WHERE false", "--format", "csv")
    (steps,) = (table for table in TABLES if table.name == "steps")
    assert done.stdout == ",".join(column.name for column in steps.columns) + "\n"
    assert done.returncode == 0


FAILURES: list[tuple[list[str], int, str]] = [
    (["query", "SELEC 1"], 1, 'syntax error at or near "SELEC".\n  SELEC 1\n  ^\n'),
    (["query", "SELECT * FROM python.torch_trac"], 1, "Did you mean python.torch_trace?\n"),
    (["query", "DROP TABLE python.steps"], 1, "only statements that read"),
    (["query", "SELECT * FROM read_csv('/etc/passwd')"], 1, "error: "),
    (["query", "--timeout", "1", ENDLESS], 5, "its limit of 1 s"),
    (["query", "--timeout", "1", UNSTOPPABLE], 5, "its limit of 1 s"),
    (["query"], 2, "give SQL as an argument"),
    (["query", "SELECT 1", "-f", "x"], 2, "not both"),
    (["query", "-f", "/no/such/file"], 2, "cannot read /no/such/file: No such file or directory."),
    (["query", "SELECT 1", "-o", "x.dat"], 2, "does not tell the format"),
    (["query", "SELECT 1", "-o", "/no/such/x.csv"], 2, "cannot write /no/such/x.csv"),
    (["query", "SELECT 1", "--nope"], 2, "No such option"),
    (["eval", "x +"], 1, "line 1: invalid syntax\n  x +\n"),
    (["eval", "--timeout", "1", "while True: pass"], 5, "its limit of 1 s"),
    (["eval", "1/0"], 1, "ZeroDivisionError: division by zero"),
    (["eval", "raise SystemExit(3)"], 1, "SystemExit: 3"),
    (["tables", "torch_trac"], 2, "there is no table 'torch_trac'. Did you mean"),
    (["config", "nonsense"], 2, "setting nonsense: there is no such setting."),
    (["config", "recording=maybe"], 2, "'maybe' is not one of"),
    (["config", "home=/x"], 2, "it is read at start only"),
    (["list"], 2, "list takes no endpoint"),
    (["qery", "SELECT 1"], 2, "there is no command 'qery'. Did you mean query?"),
]


@pytest.mark.parametrize(("words", "code", "sentence"), FAILURES, ids=[str(f[0]) for f in FAILURES])
def test_failures(training: Target, words: list[str], code: int, sentence: str) -> None:
    """Each mistake is a sentence on stderr with its exit code, and nothing on stdout."""
    step = training.step()
    is_code = words[0] == "eval"
    with patience(connect(str(training.folder.path))) if is_code else nullcontext():
        done = ask(training, *words)
        # A busy machine let the training do nothing meanwhile, or not even say that it is there.
        while NOT_RUN in done.stderr or "did not answer within 1 s" in done.stderr:
            done = ask(training, *words)
    assert (done.stdout, done.returncode) == ("", code)
    assert sentence in done.stderr
    wait_until(lambda: training.step() > step, "the training goes on")


@pytest.mark.parametrize(
    ("endpoint", "code", "sentence"),
    [
        ("999999999", 3, "there is no process 999999999"),
        ("1", 3, "process 1 is alive, but it"),
        ("127.0.0.1:1", 3, "there is no probing agent at 127.0.0.1:1"),
        ("127.0.0.1:99999", 2, "'127.0.0.1:99999' is not an endpoint"),
        ("", 2, "the endpoint is empty"),
        ("no such name", 3, "there is no process"),
    ],
)
def test_wrong_endpoints(training: Target, endpoint: str, code: int, sentence: str) -> None:
    """An endpoint that leads nowhere is a sentence with the exit code of its kind."""
    done = training.run("-t", endpoint, "query", "SELECT 1")
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert done.returncode == code


def test_eval_prints_output_then_value(training: Target) -> None:
    """What the code printed comes first, the value of the last expression after it."""
    done = ask(training, "eval", "print('seen', type(model).__name__)\n6 * 7")
    assert (done.stdout, done.returncode) == ("seen GPT\n42\n", 0)
    assert done.stderr.startswith("at step ")


def test_eval_that_says_nothing_says_so(training: Target) -> None:
    """Silence is confirmed on stderr, with the time it took and the step."""
    done = ask(training, "eval", "quiet = 1")
    assert done.stdout == ""
    assert done.stderr.startswith("done in ")
    assert " at step " in done.stderr


def test_eval_keeps_output_before_an_error(training: Target) -> None:
    """Output goes to stdout and the traceback to stderr, both whole."""
    done = ask(training, "eval", "print('before')\nraise KeyError('k')")
    assert done.stdout == "before\n"
    assert done.stderr.endswith("KeyError: 'k'\n")
    assert done.returncode == 1


def test_eval_counts_what_it_does_not_keep(training: Target) -> None:
    """Output beyond the limit is cut, and the number of missing bytes is told."""
    done = ask(training, "eval", "print('x' * 3_000_000)")
    assert len(done.stdout) < 2_000_000
    assert "more bytes of output were not kept" in done.stderr


def test_eval_from_file_stdin_and_as_json(training: Target, tmp_path: Path) -> None:
    """Code comes from wherever SQL may come from; --json gives all that is known."""
    path = tmp_path / "code.py"
    path.write_text("print('from a file')")
    assert ask(training, "eval", "-f", str(path)).stdout == "from a file\n"

    def answer() -> dict[str, Any]:
        done = training.run(str(training.pid), "eval", "-", "--json", input="'text'")
        found: dict[str, Any] = json.loads(done.stdout)
        assert (found["value"], found["error"]) == ("'text'", None)
        return found

    # A training that a busy machine lets do nothing for a second is not held.
    wait_until(lambda: answer()["where"] == "safe point", "an eval at a safe point")
    now = json.loads(ask(training, "eval", "--now", "--json", "1").stdout)
    assert now["where"] != "safe point"


def test_tables_lists_every_table(training: Target) -> None:
    """Every table is listed with its meaning; a recorded one with its books in balance."""
    text = ask(training, "tables").stdout
    found = {t["name"]: t for t in json.loads(ask(training, "tables", "--format", "json").stdout)}
    for table in TABLES:
        assert table.full_name in text
        assert found[table.full_name]["doc"] == table.doc
    steps = found["python.steps"]
    assert steps["written"] == steps["rows"] + steps["overwritten"] + steps["dropped"]


def test_tables_lists_every_column(training: Target) -> None:
    """The columns it lists, and their types, are those that SQL has, for each table."""
    found = json.loads(ask(training, "tables", "--format", "json").stdout)
    listed = {
        table["name"]: [(column["name"], column["type"]) for column in table["columns"]]
        for table in found
    }
    each = (
        f"SELECT '{table.full_name}' AS name, column_name, column_type"
        f" FROM (DESCRIBE {table.full_name})"
        for table in TABLES
    )
    described: dict[str, list[tuple[str, str]]] = {}
    for line in ask(
        training, "query", "--format=jsonl", " UNION ALL ".join(each)
    ).stdout.splitlines():
        name, column, type_ = json.loads(line).values()
        described.setdefault(name, []).append((column, type_))
    assert listed == described


@pytest.mark.parametrize("name", ["steps", "python.tensors"])
def test_tables_tells_of_one_table(training: Target, name: str) -> None:
    """By its short name or its full one: each column, for people and for programs."""
    listed = json.loads(ask(training, "tables", name, "--format", "json").stdout)["columns"]
    text = ask(training, "tables", name).stdout
    assert listed
    assert all(column["name"] in text for column in listed)


def test_config_lists_and_sets(training: Target) -> None:
    """Every setting is listed; one that can change changes, and says where it comes from."""
    text = ask(training, "config").stdout
    assert all(setting.name in text for setting in SETTINGS)
    name = "eval_max_running"
    (before,) = json.loads(ask(training, "config", name, "--format", "json").stdout)
    after = str(int(before["value"]) + 1)
    assert after in ask(training, "config", f"PROBING_EVAL_MAX_RUNNING={after}").stdout
    (now,) = json.loads(ask(training, "config", name, "--format", "json").stdout)
    assert (now["value"], now["source"]) == (after, "changed at run time")


def test_several_endpoints_answer_together(training: Target) -> None:
    """The rows of all endpoints come as one answer; the first failure gives the exit code."""
    name, folder = str(training.pid), str(training.folder.path)
    words = ["-t", name, "-t", "999999999", "-t", folder, "query"]
    done = training.run(*words, "SELECT pid, count(*) > 0 AS x FROM python.steps GROUP BY pid",
                        "--format", "csv")  # fmt: skip
    assert done.stdout == f"pid,x\n{name},true\n"
    assert "note: 999999999: there is no process 999999999" in done.stderr
    assert "1 row, " in done.stderr
    assert done.returncode == 3
    done = training.run("-t", name, "-t", folder, "eval", "1 + 1")
    assert done.stdout == f"process {name}:  2\n"  # two names of one process


def test_reader_that_leaves_is_no_error(training: Target) -> None:
    """A huge answer piped to head ends with it: quickly, quietly, as after SIGPIPE."""
    sql = "SELECT i, 'text ' || i AS s FROM range(10000000) t(i)"
    process = start(training, str(training.pid), "query", "--format=jsonl", sql)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b'{"i":0,"s":"text 0"}\n'
    process.stdout.close()
    assert process.wait(DEADLINE_S) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def _cpu_of_engine_s(pid: int) -> float:
    """Processor time of the child in which a command runs its query."""
    found = [process_facts(child) for child in children_of(pid)]
    return sum(facts.cpu_s for facts in found if facts is not None)


@pytest.mark.parametrize("to_group", [True, False], ids=["from a terminal", "by kill"])
@pytest.mark.parametrize("sql", [ENDLESS, UNSTOPPABLE])
def test_ctrl_c_is_quiet(training: Target, sql: str, to_group: bool) -> None:
    """Ctrl-C ends a query at once, whatever its engine is in the middle of, without a word."""
    process = start(training, str(training.pid), "query", sql, start_new_session=True)
    wait_until(lambda: _cpu_of_engine_s(process.pid) > 1.5, "the query runs")
    if to_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=DEADLINE_S) == (b"", b"")
    assert process.returncode == 130


_INTERRUPTING = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["AT_IMPORT_OF"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize(
    "at", ["probing.cli.main", "click", "probing.cli.commands.query", "_duckdb"]
)
def test_ctrl_c_at_the_start_is_quiet(training: Target, at: str, tmp_path: Path) -> None:
    """Whatever is being imported as it comes, there is no traceback."""
    (tmp_path / "sitecustomize.py").write_text(_INTERRUPTING)
    env = {**training.env, "PYTHONPATH": f"{tmp_path}:{training.env['PYTHONPATH']}"}
    words = [str(training.pid), "query", "SELECT 1", "--format", "table"]
    done = subprocess.run(
        [sys.executable, "-m", "probing", *words],
        env={**env, "AT_IMPORT_OF": at},
        cwd=training.cwd,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert done.returncode in {130, -signal.SIGINT}


def test_a_limit_is_of_the_whole_command(training: Target, tmp_path: Path) -> None:
    """A series without an end is ended with its limit, though it comes fast; no part stays."""
    series = "FROM range(1000000000000)"
    with open(os.devnull, "wb") as nowhere:
        words = [str(training.pid), "query", "--timeout", "1", series]
        process = start(training, *words, stdout=nowhere.fileno())
        _, err = process.communicate(timeout=DEADLINE_S)
    assert err.startswith(b"error: the query was ended after its limit of 1 s.")
    assert process.returncode == 5
    file = tmp_path / "x.csv"
    # Not one of the commands whose lines are counted: the alarm in the midst of that is a fault.
    process = start(training, *words, "-o", str(file))
    _, err = process.communicate(timeout=DEADLINE_S)
    assert err.startswith(b"error: the query was ended after its limit of 1 s.")
    assert (process.returncode, os.listdir(tmp_path)) == (5, [])


def test_a_locale_that_is_not_utf_8(training: Target) -> None:
    """Tables are drawn in ASCII there, what is typed is UTF-8, and what is written stays whole."""
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    def run(*words: str) -> tuple[int, bytes]:
        argv = [sys.executable, "-m", "probing", str(training.pid), *words]
        env = {**training.env, **plain}
        done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, timeout=DEADLINE_S)
        return done.returncode, done.stdout

    sql = "SELECT 'h\u00e9' AS word"
    assert run("query", sql, "--format", "table") == (0, b"word\n----\nh\\xe9\n")
    assert run("query", "--format=jsonl", sql) == (0, '{"word":"h\u00e9"}\n'.encode())
    assert run("eval", "print(len('h\u00e9'))") == (0, b"2\n")


def test_help_of_an_action_needs_no_endpoint(training: Target) -> None:
    """A hint sends people there; and the options of every command stand behind its words, too."""
    done = training.run("act", "lr", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--scale" in done.stdout
    done = training.run("act", "lr", "0.1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "act lr needs an endpoint: `probing ENDPOINT act lr ...`" in done.stderr
    done = ask(training, "act", "list", "--timeout", "9", "--format", "json")
    assert done.returncode == 0
    assert isinstance(json.loads(done.stdout), list)  # what other tests of this training have done


def test_tables_can_be_found_in_sql(training: Target) -> None:
    """What users of DuckDB type answers with every table, for one process as for many."""
    names = {table.name for table in TABLES}
    for target in (str(training.pid), "all"):
        for sql in ("SHOW TABLES", "PRAGMA show_tables", "DESCRIBE"):
            done = training.run("-t", target, "query", sql, "--format=jsonl")
            assert names == {json.loads(line)["name"] for line in done.stdout.splitlines()}, sql
        done = training.run("-t", target, "query", "--format=jsonl", "PRAGMA table_info('steps')")
        columns = [json.loads(line)["name"] for line in done.stdout.splitlines()]
        assert "loss" in columns, done.stderr
        done = training.run(
            "-t", target, "query", "--format=jsonl", "SELECT count(*) AS n FROM steps"
        )
        assert json.loads(done.stdout)["n"] > 0, done.stderr


def test_full_disk_behind_stdout_is_a_sentence(training: Target) -> None:
    """Output that cannot be written is said once, without noise at the interpreter's end."""
    with open("/dev/full", "wb") as full:
        words = [str(training.pid), "query", "SELECT 1"]
        process = start(training, *words, stdout=full.fileno())
        _, err = process.communicate(timeout=DEADLINE_S)
    assert err == b"error: cannot write to standard output: No space left on device.\n"
    assert process.returncode == 2


def on_a_terminal(training: Target, *words: str, columns: int = 60, **extra: str) -> str:
    """What a command shows on a terminal of that width."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in training.env.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-m", "probing", *words],
        env={**env, "TERM": "xterm", **extra},
        stdin=subprocess.DEVNULL,
        stdout=side,
        stderr=subprocess.STDOUT,
    )
    os.close(side)
    shown = b""
    try:
        while part := os.read(main, 65536):
            shown += part
    except OSError:  # Linux: the other side has closed
        pass
    os.close(main)
    process.wait(DEADLINE_S)
    return without_waiting(shown.decode().replace("\r\n", "\n"))


HOSTILE = "a\x1b]0;title\x07b\x9b2Jc\u202ed"
"""A window's title, a cleared screen and a text turned round, if a terminal is told so."""


@pytest.mark.parametrize("form", ["csv", "json", "jsonl", "markdown", "table"])
def test_what_a_process_says_does_not_steer_a_terminal(form: str, training: Target) -> None:
    """Control characters are written out on a terminal and left alone in a pipe."""
    sql = "SELECT chr(27) || ']0;title' || chr(7) || 'b' || chr(155) || '2Jc' || chr(8238) AS x"
    words = [str(training.pid), "query", "--format", form, sql]
    shown = on_a_terminal(training, *words, columns=200, NO_COLOR="1")
    assert "title" in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown), shown
    if form in ("csv", "markdown"):
        piped = training.run(*words).stdout
        assert "\u202e" in piped


def test_what_an_eval_prints_does_not_steer_a_terminal(training: Target) -> None:
    """An eval's output is escaped on a terminal and whole in a pipe; colours are colours."""
    words = [str(training.pid), "eval", f"print({HOSTILE!a}); print('\\x1b[31mred\\x1b[0m')"]
    shown = on_a_terminal(training, *words)
    assert "\x1b[31mred\x1b[0m" in shown
    assert not re.search("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202e]|\x1b[^[]", shown), shown
    assert HOSTILE in training.run(*words).stdout


def test_a_terminal_gets_a_table(training: Target) -> None:
    """On a terminal the answer is a table that fits its 24 lines, with colours unless NO_COLOR."""
    words = [str(training.pid), "query", "SELECT i, repeat('x', 99) AS s FROM range(9999) t(i)"]
    shown = on_a_terminal(training, *words)
    assert "\x1b[1m" in shown
    plain = on_a_terminal(training, *words, NO_COLOR="1")
    assert "\x1b" not in plain
    lines = plain.splitlines()
    assert lines[-1] == "… 9,980 more rows; -n 0 shows all"
    assert len(lines) == 2 + 19 + 1
    assert max(map(len, lines)) == 60
    shown = on_a_terminal(training, *words, "--format", "parquet")
    assert shown.startswith("\x1b[1;31merror:\x1b[0m parquet is binary")


def test_streams_that_are_closed_do_not_matter(training: Target) -> None:
    """A command without stdout or stderr still ends with the right exit code."""
    shell = f"'{sys.executable}' -m probing {training.pid} query"
    for words, code in (("'SELECT 1' >&-", 0), ("'SELEC 1' 2>&-", 1)):
        done = subprocess.run(
            ["sh", "-c", f"{shell} {words}"],
            env=training.env,
            cwd=training.cwd,
            capture_output=True,
            check=False,
        )
        assert done.returncode == code
        assert b"Traceback" not in done.stderr


def test_an_error_that_nobody_reads_keeps_its_exit_code(training: Target) -> None:
    """An error written to a pipe without a reader still gives its exit code."""
    reading, writing = os.pipe()
    os.close(reading)
    process = start(training, str(training.pid), "query", "SELEC 1", stderr=writing)
    os.close(writing)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (out, process.returncode) == (b"", 1)


def test_any_encoding_can_show_any_text(training: Target) -> None:
    """What the terminal's encoding lacks is written out rather than an error."""
    words = [str(training.pid), "query", "--format", "markdown", "SELECT 1 AS x"]
    assert training.run(*words, PYTHONIOENCODING="ascii").returncode == 0
    words = [str(training.pid), "eval", "print('\u65e5')"]
    done = training.run(*words, PYTHONIOENCODING="ascii")
    assert (done.stdout, done.returncode) == ("\\u65e5\n", 0)
    shown = training.run(str(training.pid), PYTHONIOENCODING="ascii").stdout
    assert "loss " in shown
    assert "\\u" not in shown, "what we draw has a stand-in"


def test_the_stopped_and_the_dead_still_answer(fresh_training: Target) -> None:
    """Stopped, its stacks are read from outside; after kill -9, its record answers queries."""
    target, pid = fresh_training, str(fresh_training.pid)
    stop(target.pid)
    done = target.run(pid, "backtrace")
    assert "taken by py-spy from outside" in done.stdout
    assert "is stopped by a signal" in done.stderr
    assert done.returncode == 0
    assert "stopped" in target.run("list").stdout
    target.kill()
    done = target.run(
        pid, "query", "--format=jsonl", "SELECT max(step) >= 3 AS ok FROM python.steps"
    )
    assert done.stdout == '{"ok":true}\n'
    done = target.run(pid, "eval", "1")
    assert (done.stdout, done.returncode) == ("", 3)
    assert f"process {pid} has ended" in done.stderr
    assert pid not in target.run("list").stdout
    assert "dead" in target.run("list", "--dead").stdout


SCRIPT = """
import os, sys
print(sys.argv, __name__, os.environ["PROBING"], os.environ.get("PROBING_LISTEN"))
sys.exit(7)
"""


def run_script(tmp_path: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `probing run` in an empty folder with a script and a module in it."""
    (tmp_path / "script.py").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, "-m", "probing", "run", *words],
        env=clean_env(tmp_path / "home", **extra),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_run_is_the_script(tmp_path: Path) -> None:
    """The script sees its own arguments and name, and its exit code is the command's."""
    done = run_script(tmp_path, "script.py", "--listen", "x", "--help")
    assert done.stdout == "['script.py', '--listen', 'x', '--help'] __main__ 1 None\n"
    assert (done.stderr, done.returncode) == ("", 7)
    done = run_script(tmp_path, "--listen", "127.0.0.1:0", "-m", "script", "a")
    argv, _, rest = done.stdout.rpartition("] ")
    assert argv.endswith("script.py', 'a'")
    assert rest == "__main__ 1 127.0.0.1:0\n"
    assert done.returncode == 7
    assert " all " in run_script(tmp_path, "script.py", PROBING="all").stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nope.py"], "error: there is no script nope.py.\n"),
        (["-m"], "error: -m needs the name of a module.\n"),
        (["sh", "x.sh"], "error: sh is a program; run takes a Python script"),
        ([], "error: Missing argument"),
    ],
)
def test_run_without_a_script(tmp_path: Path, words: list[str], sentence: str) -> None:
    """Nothing to run is one sentence and exit code 2."""
    done = run_script(tmp_path, *words)
    assert done.stderr.startswith(sentence)
    assert (done.stdout, done.returncode) == ("", 2)
