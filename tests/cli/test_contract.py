"""What programs rely on: the keys of every command's JSON, and the exit codes, as promised."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

import probing
from probing.cli.group import probing as probing_command
from probing.cli.help.contract import EXIT_CODES, OUTPUTS, OWN_CODES
from probing.cli.main import run
from probing.cli.tasks import COMMANDS
from probing.errors import error_classes
from tests.harness.targets import Target, clean_env, run_command, wait_until

ARGUMENTS: Mapping[str, Sequence[str]] = {
    "doctor": ("--timeout", "4"),
    "profile": ("--steps", "1"),
    "leak": ("--steps", "2"),
    "fit": ("--batch", "4"),
    "memory": ("-n", "1"),
    "query": ("SELECT max(step) AS step, 1 AS one FROM steps",),
    "eval": ("6 * 7",),
    "act lr": ("--scale", "1.0"),
    "history query": ("SELECT max(step) AS step, 1 AS one FROM steps",),
}
"""What a command is given beside its name."""
NO_JSON = {
    *("act", "attach", "detach", "file"),
    *("repl", "report", "run", "serve", "top", "web", "mcp", "gateway"),
}
"""Groups, and commands whose answer is a sentence, a prompt, a screen, a page or the script's."""
ACTS = {
    *("act clip", "act checkpoint", "act cleanup", "act nan-guard", "act keep-layers"),
    *("act skip-attention", "act run"),
}
"""Commands that answer as `act lr` does, and would leave their mark on the training of all."""
OF_FILES = {"file memory-viz", "file checkpoint"}
"""Commands that ask no process."""
REWRITES = {"history compact", "history iceberg"}
"""Commands that write into the history that they are given."""
AFTER_AN_ACTION = {"act list", "act undo"}


@pytest.fixture(scope="module")
def kept(training: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history with the training in it."""
    history = tmp_path_factory.mktemp("kept") / "history"
    done = training.run(str(training.pid), "export", str(history))
    assert done.returncode == 0, done.stderr
    return history


@pytest.fixture
def words(
    training: Target, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[str], list[str]]:
    """Tells the words of a command that a training answers; what it needs is there then."""

    def told(name: str) -> list[str]:
        if not name.startswith("history"):
            return _words(name, training, str(tmp_path / "history"))
        history: Path = request.getfixturevalue("kept")
        if name in REWRITES:
            history = shutil.copytree(history, tmp_path / "history")
        return _words(name, training, str(history))

    return told


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in OUTPUTS if name != "jobs"])
def test_json_has_the_promised_keys(
    name: str, training: Target, words: Callable[[str], list[str]]
) -> None:
    """One value on stdout, whole and nothing else, with each key and no other."""
    done = training.run(*words(name), "--json")
    assert done.returncode == 0, done.stderr
    _verify(name, json.loads(done.stdout))


def _words(name: str, training: Target, history: str) -> list[str]:
    """A command that a training answers, with what it needs to be there before."""
    if name in AFTER_AN_ACTION:
        acted = training.run(str(training.pid), "act", "lr", "--scale", "1.0")
        assert acted.returncode == 0, acted.stderr
    words = [*name.split(), *ARGUMENTS.get(name, ())]
    if name == "export":
        words.append(history)
    if name.startswith("history"):
        words.insert(2, history)
        words += [f"{training.pid}-"] * {"history show": 1, "history diff": 2}.get(name, 0)
    elif name == "diff":
        words += [str(training.pid), str(training.pid)]
    elif name != "list":
        words.insert(0, str(training.pid))
    return words


def _with_file() -> set[str]:
    """Every command, at any depth, that takes ``-o FILE``."""
    context = click.Context(probing_command)
    found: set[str] = set()
    for name in COMMANDS:
        command = probing_command.get_command(context, name)
        assert command is not None
        inner = command.commands if isinstance(command, click.Group) else {}
        each = {name: command, **{f"{name} {word}": one for word, one in inner.items()}}
        found |= {words for words, one in each.items() if any("-o" in p.opts for p in one.params)}
    return found


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(_with_file() - ACTS - OF_FILES - {"jobs"}))
def test_a_file_has_all_of_the_answer(
    name: str, training: Target, words: Callable[[str], list[str]], tmp_path: Path
) -> None:
    """What stdout would have, and nothing there; it is written once, though some commands fork."""
    file = tmp_path / ("answer.html" if name == "report" else "answer.json")
    done = training.run(*words(name), "-o", str(file))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.count("written to") <= 1
    if name in OUTPUTS:
        _verify(name, json.loads(file.read_text()))
    assert file.stat().st_size


@pytest.mark.torch
@pytest.mark.parametrize("name", ["history show", "history diff", "history runs"])
def test_no_answer_is_no_file(name: str, training: Target, tmp_path: Path) -> None:
    """Of a command that fails in the child that it forks, either."""
    runs = ["run"] * {"history runs": 0, "history show": 1, "history diff": 2}[name]
    file = tmp_path / "answer.txt"
    done = training.run(*name.split(), str(tmp_path / "nothing"), *runs, "-o", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no history in" in done.stderr
    assert "written to" not in done.stderr
    assert not file.exists()


@pytest.mark.anypython
def test_every_command_with_a_file_is_known() -> None:
    """Those that are left out above change a training, or take a file of their own."""
    assert _with_file() == {*OUTPUTS, *ACTS, *OF_FILES, "report"}


@pytest.mark.torch
def test_json_of_jobs_has_the_promised_keys(
    training: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An eval that runs is listed."""
    monkeypatch.setenv("PROBING_HOME", str(training.home))
    process = probing.connect(training.pid)
    code = "import time\nfor _ in range(6000): time.sleep(0.01)"
    asks = threading.Thread(target=lambda: process.eval(code, now=True, timeout_s=100))
    asks.start()
    try:
        wait_until(lambda: process.jobs().jobs, "a running eval")
        done = training.run(str(training.pid), "jobs", "--json")
    finally:
        for job in process.jobs().jobs:
            process.cancel(job.number)
        asks.join()
    assert done.returncode == 0, done.stderr
    _verify("jobs", json.loads(done.stdout))


def _verify(name: str, answer: Any) -> None:
    """The answer is of the promised shape."""
    output = OUTPUTS[name]
    if output.shape == "object":
        assert set(answer) == set(output.all_keys())
        return
    assert isinstance(answer, list)
    assert answer
    wanted = {"step", "one"} if output.shape == "rows" else set(output.all_keys())
    assert all(set(one) == wanted for one in answer)


@pytest.mark.anypython
def test_every_command_is_promised() -> None:
    """No command is missing on the page, and none is there that is gone."""
    assert {name.partition(" ")[0] for name in OUTPUTS} | NO_JSON == set(COMMANDS)
    assert set(OWN_CODES) <= set(COMMANDS)


@pytest.mark.anypython
def test_every_error_has_an_exit_code_of_the_page() -> None:
    """Each class of the tree ends with a code that is explained."""
    assert {cls.exit_code for cls in error_classes()} <= set(EXIT_CODES)


_ELSEWHERE = {"query"}
"""Commands that go on in a forked child, as a process with threads cannot."""
_OTHERS = {
    *("list", "run", "serve", "file", "diff", "act", "attach", "detach", "top", "web", "mcp"),
    *("history", "gateway"),
}
ASKING = sorted(set(COMMANDS) - _OTHERS - _ELSEWHERE)
NEEDS = {"export": ["history"], "eval": ["1"], "arm": ["nan"], "fit": ["--batch", "1"]}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a command in this process, in a run directory of its own."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    return lambda *words: run(words)


@pytest.mark.anypython
@pytest.mark.parametrize("name", [*ASKING, "act lr", "attach", "detach"])
def test_no_such_process_ends_with_3(
    name: str, here: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence on stderr, nothing on stdout, whatever the command is."""
    needs = ["1e-3"] if name == "act lr" else NEEDS.get(name, [])
    pid = str(2**22 + 1)  # the kernel gives no such number
    before = [] if name in {"attach", "detach"} else [pid]
    after = [pid] if name in {"attach", "detach"} else []
    assert here(*before, *name.split(), *needs, *after) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")


@pytest.mark.anypython
def test_a_query_of_no_process_ends_with_3(tmp_path: Path) -> None:
    """The same of the command that asks by SQL."""
    env = clean_env(tmp_path / "home")
    done = run_command(str(2**22 + 1), "query", "SELECT 1", cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: ")


@pytest.mark.anypython
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_unknown_option_ends_with_2(
    name: str, here: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is asked of anybody."""
    groups = {"file": ["file", "memory-viz"], "history": ["history", "runs"]}
    words = {**groups, "act": ["4242", "act", "lr"]}.get(name, ["4242", name])
    assert here(*words, "--no-such-option") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "--no-such-option" in shown.err
