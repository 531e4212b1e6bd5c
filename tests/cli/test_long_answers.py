"""What a person sees who waits: a sign of life, a pager, and at Ctrl-C what there is so far."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.harness.targets import DEADLINE_S, Target
from tests.harness.terminals import Terminal, piped

pytestmark = pytest.mark.torch

CTRL_C = "\x03"
PAGED = "sed s/^/PAGED:/"
PART = "note: interrupted: this is a part"


def terminal_of(target: Target, *words: str, **extra: str) -> Terminal:
    """A command on a terminal of 80 x 24."""
    return Terminal(*words, env={**target.env, **extra}, cwd=target.cwd)


def rows(number: int) -> list[str]:
    """A question with so many rows, all of them shown."""
    return ["query", f"SELECT i AS row FROM range({number}) t(i)", "-n", "0"]


def test_help_and_errors_are_made_for_the_screen(training: Target) -> None:
    """Help is paged; a sentence is broken between words, a command in it nowhere."""
    with terminal_of(training, "query", "--help", PROBING_PAGER=PAGED) as terminal:
        assert terminal.end() == 0
        assert all(line.startswith("PAGED:") for line in terminal.screen)
    with terminal_of(training, str(training.pid), "query", "SELECT", "step") as terminal:
        assert terminal.end() == 2
        lines = terminal.screen
    command = f'`probing {training.pid} query "..."`'
    assert all(len(line) <= 80 for line in lines)
    assert any(command in line for line in lines), lines
    assert " ".join(line.strip() for line in lines[:2]).startswith("error: query takes its text as")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of somebody who takes a question and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_what_is_longer_than_the_terminal_is_paged(training: Target) -> None:
    """A short answer is not, and neither is one for which no pager is wanted."""
    pid = str(training.pid)
    for words, variables, is_paged in (
        (rows(100), {"PROBING_PAGER": PAGED}, True),
        (rows(10), {"PROBING_PAGER": PAGED}, False),
        ([*rows(100), "--no-pager"], {"PROBING_PAGER": PAGED}, False),
        (rows(100), {"PROBING_PAGER": "cat", "PAGER": PAGED}, False),
        (rows(100), {"PROBING_PAGER": "no-such-program"}, False),
    ):
        with terminal_of(training, pid, *words, **variables) as terminal:
            assert terminal.end() == 0
            # A sign of life that was wiped out on a busy machine has left an empty line.
            lines = [line for line in terminal.screen if line]
        marked = [line for line in lines if line.startswith("PAGED:")]
        assert len(marked) == (len(lines) if is_paged else 0), (words, variables)
        last = "99" if "100" in words[1] else "9"
        assert lines[-1].removeprefix("PAGED:").strip() == last


def test_a_pipe_is_never_paged(training: Target) -> None:
    """A pager is for eyes."""
    done = training.run(str(training.pid), *rows(100), PROBING_PAGER=PAGED)
    assert "PAGED" not in done.stdout
    assert len(done.stdout.splitlines()) == 102


def test_notes_come_after_the_pager(training: Target) -> None:
    """What is said on stderr stays on the screen when the pager has gone."""
    sql = "SELECT i, (SELECT max(step) FROM steps) AS step FROM range(100) t(i)"
    words = ["-t", str(training.pid), "-t", "999999999", "query", sql, "-n", "0"]
    with terminal_of(training, *words, PROBING_PAGER=PAGED) as terminal:
        terminal.end()
        lines = terminal.screen
    paged = [index for index, line in enumerate(lines) if line.startswith("PAGED:")]
    noted = [index for index, line in enumerate(lines) if line.startswith("note: ")]
    assert len(paged) > 100
    assert noted
    assert all(index < paged[0] or index > paged[-1] for index in noted)
    assert any(index > paged[-1] for index, line in enumerate(lines) if "answered" in line)


def test_a_long_wait_says_what_for(training: Target, silent: str) -> None:
    """One line with the time, which is gone when the answer is there."""
    words = (silent, "status", "--timeout", "600")
    with terminal_of(training, *words, PROBING_TOKEN="x") as terminal:
        terminal.wait_for(lambda lines: re.search(r"… \d+ s", "\n".join(lines)), "the line")
        assert terminal.screen[-1].startswith(f"asking {silent}: status … ")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert "asking" not in terminal.text


def test_nothing_of_a_wait_is_in_a_pipe(training: Target, silent: str) -> None:
    """A log has the error alone."""
    done = training.run(silent, "status", "--timeout", "2", PROBING_TOKEN="x")
    assert done.returncode != 0
    assert "asking" not in done.stderr
    assert done.stderr.startswith("error: ")


def test_who_has_answered_is_shown_at_ctrl_c(training: Target, silent: str) -> None:
    """Of two that are asked, the answer of the one, and that it is a part; exit code 130."""
    words = ["-t", str(training.pid), "-t", silent, "tables", "steps", "--no-pager"]
    with terminal_of(training, *words, PROBING_TOKEN="x") as terminal:
        terminal.wait_for(f"== {training.pid} ==")
        terminal.wait_for(
            "The row's number in this table"
        )  # on a busy machine, it is asked for long
        terminal.wait_for("asking")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert PART in terminal.text
        assert "The row's number in this table" in terminal.text


def test_the_steps_until_ctrl_c_are_shown(training: Target) -> None:
    """Gradients of a thousand steps: those that have come."""
    words = [str(training.pid), "gradients", "--steps", "1000", "-n", "3"]
    with terminal_of(training, *words) as terminal:
        terminal.wait_for(
            lambda lines: re.search(r"\b[1-9]\d* of 1,000 steps", "\n".join(lines)), "a step"
        )
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert PART in terminal.text
        assert "all together: norm" in terminal.text


@pytest.mark.parametrize("is_group", [True, False], ids=["Ctrl-C", "kill -INT"])
def test_rows_without_an_end_are_whole_at_ctrl_c(is_group: bool, training: Target) -> None:
    """JSON is closed after the rows that had come, whoever of parent and child is told to end."""
    words = [str(training.pid), "query", "FROM range(100000000000)", "--json"]
    with piped(training, *words) as process:
        assert process.stdout is not None
        begin = os.read(process.stdout.fileno(), 1000)
        (os.killpg if is_group else os.kill)(process.pid, signal.SIGINT)
        rest, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert PART in err.decode()
    numbers = [row["range"] for row in json.loads(begin + rest)]
    assert numbers == list(range(len(numbers)))


def test_a_verdict_is_no_part(training: Target, silent: str) -> None:
    """`hang` on half of what it needs would be wrong: it says nothing."""
    words = ["-t", str(training.pid), "-t", silent, "hang"]
    with terminal_of(training, *words, PROBING_TOKEN="x") as terminal:
        terminal.wait_for("asking")
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert "interrupted" not in terminal.text
        assert "progress" not in terminal.text
