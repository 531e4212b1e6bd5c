"""`--watch SECONDS`: a command again and again, on a terminal and in a pipe."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.targets import DEADLINE_S, Target, wait_until
from tests.harness.terminals import Terminal, piped

pytestmark = pytest.mark.torch

STAMP = re.compile(r"== \d{4}-\d\d-\d\d \d\d:\d\d:\d\d ==\n")
CTRL_C = "\x03"
STEP = "SELECT max(step) AS step FROM steps"


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """The lines as they come."""
    assert process.stdout is not None
    return iter(process.stdout.readline, "")


def test_looks_follow_each_other_in_a_pipe(training: Target) -> None:
    """Each stands under the time of day; Ctrl-C ends it with 130 and without a word."""
    with piped(training, str(training.pid), "query", STEP, "--watch", "0.2", text=True) as process:
        seen: list[int] = []
        stamps = 0
        for line in lines_of(process):
            stamps += bool(STAMP.fullmatch(line))
            seen += [int(line)] if line.strip().isdecimal() else []
            if len(set(seen)) > 2:
                break
        assert stamps == len(seen)
        assert seen == sorted(seen)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, err) == (130, "")


def test_nothing_stays_behind_when_it_is_killed(training: Target) -> None:
    """The process that runs the statements ends with the command, whatever that died of."""
    with piped(training, str(training.pid), "query", STEP, "--watch", "0.2", text=True) as process:
        assert STAMP.fullmatch(next(lines_of(process)))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (child,) = map(int, children.read_text().split())
        process.kill()
        process.wait(DEADLINE_S)
        wait_until(lambda: not Path(f"/proc/{child}/exe").exists(), "the end of its child")


def test_json_is_an_object_on_a_line(training: Target) -> None:
    """A program reads the time and the answer of each look."""
    with piped(training, "list", "--json", "--watch", "0.2", text=True) as process:
        looks = [json.loads(line) for line, _ in zip(lines_of(process), range(3), strict=False)]
    assert [set(look) for look in looks] == [{"time", "answer"}] * 3
    assert all(training.pid in [p["pid"] for p in look["answer"]] for look in looks)
    assert looks[0]["time"] < looks[2]["time"]


def test_it_ends_with_the_process(program: Callable[..., Target]) -> None:
    """Once the process has ended, one more look is the last, and the exit code is 0."""
    target = program("hung", "sleep")
    target.wait_for_output("ready")
    with piped(target, str(target.pid), "status", "--watch", "0.2", text=True) as process:
        assert STAMP.fullmatch(next(lines_of(process)))
        target.kill(signal.SIGKILL)
        _, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert f"{target.pid} has ended: nothing changes any more" in err


def test_the_first_look_may_fail(training: Target) -> None:
    """What can never be answered is not asked again; what cannot be repeated is said."""
    done = training.run(str(training.pid), "query", "SELEC 1", "--watch", "1")
    assert done.returncode == 1
    assert "syntax error" in done.stderr
    for words, sentence in (
        (["query", STEP, "--format", "csv"], "--watch repeats a table or JSON, and no csv."),
        (["status", "-o", "x.txt"], "-o writes one answer, and --watch goes on"),
        (["memory", "--record", "on"], "memory is recorded once"),
    ):
        done = training.run(str(training.pid), *words, "--watch", "1")
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
        assert not (training.cwd / "x.txt").exists()


def test_a_terminal_is_drawn_anew(training: Target) -> None:
    """One look takes the place of the other, in any size; the last stays after Ctrl-C."""

    def step(lines: list[str]) -> int:
        numbers = [int(line) for line in lines if line.strip().isdecimal()]
        return numbers[0] if len(numbers) == 1 else -1

    words = [str(training.pid), "query", STEP, "--watch", "0.2"]
    with Terminal(*words, env=training.env, cwd=training.cwd) as terminal:
        seen = step(terminal.wait_for(lambda lines: step(lines) > 0, "a look"))
        assert "every 0.2 s: probing" in terminal.screen[0]
        terminal.resize(40, 10)
        lines = terminal.wait_for(lambda lines: step(lines) > seen + 1, "a later look")
        assert max(map(len, lines)) <= 40
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert step(terminal.screen) > seen
        assert terminal.is_restored


def test_what_does_not_fit_is_counted(training: Target) -> None:
    """A low screen shows the begin of a look and how many lines there are beside it."""
    words = [str(training.pid), "--watch", "0.2"]
    with Terminal(*words, env=training.env, cwd=training.cwd, lines=8) as terminal:
        lines = terminal.wait_for("more lines, for which the screen is too low")
        assert lines[2].startswith(f"process {training.pid} ")
        assert len(lines) <= 8


_ENDS_AS_CTRL_C_COMES = """
import os
from probing.cli.ask import shield

wait = os.waitid

def waitid(*arguments):
    wait(*arguments)
    os.waitid = wait
    raise KeyboardInterrupt

os.waitid = waitid
try:
    shield.go_on_in_a_child()
except shield.LeftToChild as left:
    print(left.exit_code)
else:
    os._exit(130)
"""


def test_ctrl_c_as_the_child_ends_leaves_its_exit_code() -> None:
    """The answer of the kernel is lost to the interrupt, and is asked for again."""
    done = subprocess.run(
        [sys.executable, "-c", _ENDS_AS_CTRL_C_COMES],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("130\n", "")
