"""`probing top` on a terminal of its own: every state of a target, keys, sizes, ends."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.jobs import Job, start_job
from tests.harness.targets import DEADLINE_S, Target, clean_env, run_command, wait_until
from tests.harness.terminals import Terminal

pytestmark = pytest.mark.torch

CTRL_C, CTRL_Z, ESCAPE, DOWN = "\x03", "\x1a", "\x1b", "\x1b[B"
KEYS = "? help  q quit"


def top_of(target: Target | Job, *words: str, columns: int = 80, lines: int = 24) -> Terminal:
    """The command on a terminal."""
    return Terminal(*words, env=target.env, cwd=target.cwd, columns=columns, lines=lines)


def step_shown(lines: list[str]) -> int:
    """The step in the line of a list, or of the screen of one."""
    for line in lines:
        found = re.search(r"training +([\d,]+)", line) or re.match(r"step +([\d,]+)", line)
        if found:
            return int(found[1].replace(",", ""))
    return -1


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Three ranks that train."""
    started = start_job("odd_ranks", ranks=3, cwd=tmp_path_factory.mktemp("ranks"))
    wait_until(
        lambda: started.ask(0, "SELECT max(step) AS s FROM python.steps")[0]["s"] > 12, "steps"
    )
    yield started
    started.reap()


def test_a_training_is_shown_while_it_goes_on(training: Target) -> None:
    """The list moves with the steps; one key shows the process, another its stack, q ends."""
    with top_of(training, "top") as terminal:
        seen = step_shown(terminal.wait_for(lambda lines: step_shown(lines) >= 0, "a step"))
        terminal.wait_for(lambda lines: step_shown(lines) > seen, "a later step")
        assert "the same: probing -t all" in terminal.text
        assert str(training.pid) in terminal.text
        terminal.type("\r")
        lines = terminal.wait_for("slowest ")
        assert lines[0].startswith(f"process {training.pid} on ")
        assert len(lines) == 24
        seen = step_shown(lines)
        terminal.wait_for(lambda lines: step_shown(lines) > seen, "a later step of one")
        terminal.type("b")
        terminal.wait_for("train_gpt.py")
        assert f"the same: probing {training.pid} backtrace" in terminal.text
        terminal.type(ESCAPE)
        terminal.wait_for("slowest ")
        terminal.type("q")
        assert terminal.end() == 0
        assert terminal.is_restored


def test_one_process_begins_with_its_screen(training: Target) -> None:
    """With an endpoint it shows that one; escape goes to the list of it."""
    with top_of(training, str(training.pid), "top") as terminal:
        terminal.wait_for(lambda lines: step_shown(lines) >= 0, "a step")
        assert f"the same: probing {training.pid}" in terminal.text
        terminal.type(ESCAPE)
        terminal.wait_for("sorted by rank")


def test_nothing_of_it_holds_the_training(training: Target) -> None:
    """It leaves no trace in the table of what was asked of the training."""
    asked = "SELECT count(*) AS n FROM python.evals"
    before = training.run(str(training.pid), "query", asked).stdout
    with top_of(training, str(training.pid), "top") as terminal:
        terminal.wait_for("slowest ")
    assert training.run(str(training.pid), "query", asked).stdout == before


def test_a_pause_keeps_what_is_shown(training: Target) -> None:
    """Nothing moves after a space, and all does after the next."""
    with top_of(training, "top") as terminal:
        terminal.wait_for(lambda lines: step_shown(lines) >= 0, "a step")
        terminal.type(" ")
        terminal.wait_for("paused")
        training.wait_for_step(training.step() + 5)  # one look may have been on its way
        seen = step_shown(terminal.screen)
        later = training.step() + 5
        training.wait_for_step(later)
        assert step_shown(terminal.screen) == seen
        terminal.type(" ")
        terminal.wait_for(lambda lines: step_shown(lines) >= later, "the step of now")


def test_the_command_is_offered_to_the_clipboard(training: Target) -> None:
    """`c` sends what shows the same as terminals take it, and says it."""
    with top_of(training, str(training.pid), "top") as terminal:
        terminal.wait_for("the same: ")
        terminal.type("c")
        terminal.wait_for("copied")
        assert base64.b64decode(terminal.copied[0]).decode() == f"probing {training.pid}"


@pytest.mark.parametrize("words", [["top"], ["PID", "top"]], ids=["list", "one"])
def test_a_process_that_dies_is_shown_as_ended(
    words: list[str], program: Callable[..., Target]
) -> None:
    """Killed while it is shown, it stays on the screen, with the step that it had."""
    target = program("hung", "sleep")
    target.wait_for_output("ready")
    with top_of(target, *(word.replace("PID", str(target.pid)) for word in words)) as terminal:
        terminal.wait_for(str(target.pid))
        terminal.wait_for(KEYS)
        target.kill(signal.SIGKILL)
        terminal.wait_for(lambda lines: re.search(r"\bended\b", "\n".join(lines)), "its end")
        assert str(target.pid) in terminal.text
        terminal.type("q")
        assert terminal.end() == 0


def test_a_hung_process_is_shown_as_such(program: Callable[..., Target]) -> None:
    """One that keeps the interpreter lock for ever has its state, and its stack from outside."""
    target = program("hung", "gil")
    target.wait_for_output("ready")
    wait_until(lambda: "not answering" in target.run("list").stdout, "silence")
    with top_of(target, "top") as terminal:
        terminal.wait_for("not answ")
        terminal.type("b")
        terminal.wait_for("hung.py")
        terminal.type("q")
        assert terminal.end() == 0


def test_an_ended_process_is_shown_from_its_record(program: Callable[..., Target]) -> None:
    """After kill -9 its number still opens the screen."""
    target = program("hung", "sleep")
    target.wait_for_output("ready")
    target.kill(signal.SIGKILL)
    with top_of(target, str(target.pid), "top") as terminal:
        lines = terminal.wait_for("the last one on record")
        assert lines[0].endswith(": ended")
        terminal.wait_for("without a word")


def test_a_process_without_an_agent_is_shown(tmp_path: Path) -> None:
    """What the kernel knows, and how to get an agent in."""
    script = tmp_path / "plain.py"
    script.write_text("import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.05)\n")
    env = clean_env(tmp_path / "home")
    with subprocess.Popen(
        [sys.executable, str(script)], env=env, cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            with Terminal(str(process.pid), "top", env=env, cwd=tmp_path) as terminal:
                terminal.wait_for(f"process {process.pid}: no agent")
                terminal.wait_for(f"probing attach {process.pid}")
        finally:
            process.kill()


def test_a_job_is_sorted_filtered_and_looked_into(ranks: Job) -> None:
    """All ranks; the oddest first; those that fit; the chosen one."""

    def order(lines: list[str]) -> list[str]:
        return [m[1] for line in lines if (m := re.match(r"^[> ] +(\d) {2}\w", line))]

    with top_of(ranks, "-t", "all", "top", columns=120, lines=40) as terminal:
        terminal.wait_for("3 of 3 ranks seen")
        terminal.wait_for(lambda lines: order(lines) == ["0", "1", "2"], "three ranks")
        os.kill(ranks.pid(2), signal.SIGSTOP)
        try:
            terminal.wait_for("stopped")
            terminal.type("s")
            terminal.wait_for("sorted by state")
            terminal.wait_for(lambda lines: order(lines)[0] == "2", "the odd one first")
            terminal.type("/stopp\r")
            terminal.wait_for(lambda lines: order(lines) == ["2"], "the odd one alone")
        finally:
            os.kill(ranks.pid(2), signal.SIGCONT)
        terminal.type(ESCAPE)
        terminal.wait_for(lambda lines: len(order(lines)) == 3, "all of them again")
        terminal.type("s" * 7)
        terminal.wait_for("sorted by rank")
        terminal.type(f"{DOWN}\r")
        lines = terminal.wait_for("rank 1 of 3")
        assert lines[0].startswith("process ")
        terminal.wait_for(lambda lines: any(line.startswith("ranks ") for line in lines), "ranks")


def test_any_size_is_filled_and_none_is_exceeded(training: Target) -> None:
    """After each change the keys stand in the last line, and no line is too long."""
    with top_of(training, "top") as terminal:
        for columns, lines in ((120, 40), (80, 24), (200, 60), (40, 10), (20, 5), (80, 24)):
            terminal.resize(columns, lines)
            terminal.wait_for(
                lambda shown, lines=lines: (  # type: ignore[misc]
                    len(shown) == lines and shown[-1].startswith("arrows")
                ),
                f"a screen of {lines} lines",
            )
            assert max(map(len, terminal.screen)) <= columns
            terminal.type("\r")
            terminal.wait_for(
                lambda shown, lines=lines: (  # type: ignore[misc]
                    len(shown) == lines and shown[-1].startswith("b stack")
                ),
                "the one",
            )
            assert max(map(len, terminal.screen)) <= columns
            terminal.type(ESCAPE)


@pytest.mark.parametrize("typed", ["", "\r", "\rb", "?", "/x"])
def test_ctrl_c_gives_the_terminal_back(typed: str, training: Target) -> None:
    """Whatever is shown, the terminal is as it was, and the exit code is 130."""
    with top_of(training, "top") as terminal:
        terminal.wait_for(lambda _: terminal.is_full, "the screen")
        terminal.type(typed)
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert terminal.is_restored
        assert terminal.text.strip() == ""


def test_other_ends_give_the_terminal_back(training: Target) -> None:
    """SIGTERM ends it as it ends others; Ctrl-Z stops it without the screen, which comes back."""
    with top_of(training, "top") as terminal:
        terminal.wait_for(KEYS)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == -signal.SIGTERM
        assert terminal.is_restored


def test_who_stops_it_gets_the_terminal(training: Target, tmp_path: Path) -> None:
    """A stop gives the terminal back, and going on takes it again."""
    with top_of(training, "top") as terminal:
        terminal.wait_for(KEYS)
        # A shell would have stopped its group; this one has none around it, which the kernel
        # does not let stop by itself.
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.wait_for(lambda _: terminal.sent.count("\x1b[?1049l") == 1, "its leave")
        terminal.wait_for(KEYS)
        assert terminal.is_full
        terminal.type("q")
        assert terminal.end() == 0
        assert terminal.is_restored


def test_nobody_to_look_at_is_a_sentence(tmp_path: Path) -> None:
    """It stands on the terminal's own screen, and the exit code is that of `list`'s kin."""
    env = clean_env(tmp_path / "none")
    with Terminal("top", env=env, cwd=tmp_path) as terminal:
        assert terminal.end() == 3
        assert terminal.is_restored
        assert "error: " in terminal.text


def test_without_a_terminal_it_says_what_else_there_is(training: Target) -> None:
    """A pipe gets one sentence and the command that fits it, exit code 2."""
    done = run_command("top", env=training.env, cwd=training.cwd, timeout_s=DEADLINE_S)
    assert done.returncode == 2
    assert done.stderr.startswith("error: top needs a terminal")
    assert "--watch" in done.stderr
