"""`probing`, `probing PID` and `probing -t all` against real processes in every state."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.jobs import Job, start_job
from tests.harness.targets import DEADLINE_S, Target, clean_env, run_command, stop, wait_until
from tests.harness.terminals import without_waiting

pytestmark = pytest.mark.torch

RECORDED = """
    WITH ended AS (FROM python.steps WHERE duration IS NOT NULL)
    SELECT (SELECT max(step) FROM python.steps) AS step,
      (SELECT avg(duration) FROM (FROM ended ORDER BY step DESC LIMIT 100)) AS mean_s,
      (SELECT avg(forward_s) FROM (FROM ended ORDER BY step DESC LIMIT 20)) AS forward_s,
      (SELECT avg(duration) FROM (FROM ended ORDER BY step DESC LIMIT 20)) AS last_s,
      (SELECT arg_max(loss, step) FROM ended) AS loss
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Three ranks that train."""
    started = start_job("odd_ranks", ranks=3, cwd=tmp_path_factory.mktemp("ranks"))
    wait_until(
        lambda: started.ask(0, "SELECT max(step) AS s FROM python.steps")[0]["s"] > 12, "steps"
    )
    yield started
    started.reap()


def screen_of(target: Target, *words: str, lines: int = 24, columns: int = 80) -> list[str]:
    """What a command shows on a terminal of that size, without its colours."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    env = {name: word for name, word in target.env.items() if name not in {"COLUMNS", "NO_COLOR"}}
    command = subprocess.Popen(
        [sys.executable, "-m", "probing", *words],
        env={**env, "TERM": "xterm"},
        cwd=target.cwd,
        stdin=side,
        stdout=side,
        stderr=subprocess.DEVNULL,
    )
    os.close(side)
    shown = b""
    try:
        while data := os.read(main, 65536):
            shown += data
    except OSError:  # the other side is closed
        pass
    finally:
        os.close(main)
        assert command.wait(DEADLINE_S) == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", without_waiting(shown.decode()))
    return text.replace("\r\n", "\n").rstrip("\n").split("\n")


def line_of(lines: list[str], name: str) -> str:
    """The line that begins with a name."""
    return next(line for line in lines if line.startswith(f"{name} "))


def test_a_training_fits_one_screen(training: Target) -> None:
    """Step, loss, phases, memory, modules, findings and what to type, in 23 lines of 80."""
    training.wait_for_step(12)
    who = f"process {training.pid} on "

    def look() -> list[str] | None:  # one that answers late is told as such
        lines = screen_of(training, str(training.pid))
        is_seen = lines[0].startswith(who) and lines[0].endswith(": training")
        return lines if is_seen else None

    lines = wait_until(look, "a training")
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    for name in ("step", "loss", "phases", "memory", "slowest", "findings", "next"):
        assert line_of(lines, name)
    assert f"probing {training.pid} doctor" in line_of(lines, "next")


def test_the_figures_are_those_of_the_record(training: Target) -> None:
    """The phases add up to the mean step; the modules' own code takes what the forward pass does.

    The training is stopped meanwhile, so that both answers are of one record.
    """
    training.wait_for_step(22)
    stop(training.pid)
    try:
        found = json.loads(training.run(str(training.pid), "--format", "json").stdout)
        asked = training.run(str(training.pid), "query", RECORDED, "--format", "json").stdout
    finally:
        os.kill(training.pid, signal.SIGCONT)
    (recorded,) = json.loads(asked)
    pace = found["pace"]
    assert found["state"] == "stopped"
    assert pace["step"] == recorded["step"]
    assert sum(pace["phases"].values()) == pytest.approx(recorded["mean_s"], rel=1e-6)
    assert pace["losses"][-1] == recorded["loss"]
    assert 3 <= len(found["modules"]) <= 5
    own_s = sum(row["own_s"] for row in found["modules"])
    assert 0 < own_s <= recorded["forward_s"]
    assert sum(row["share"] for row in found["modules"]) == pytest.approx(
        own_s / recorded["last_s"]
    )
    assert found["memory"]["resident"] > 50 << 20


def test_nothing_of_it_holds_the_training(training: Target) -> None:
    """It leaves no trace in the table of what was asked of the training."""
    asked = "SELECT count(*) AS n FROM python.evals"
    before = training.run(str(training.pid), "query", asked).stdout
    training.run(str(training.pid))
    assert training.run(str(training.pid), "query", asked).stdout == before


def test_a_hung_process_says_that_no_step_ends(program: Callable[..., Target]) -> None:
    """One that keeps the interpreter lock for ever still shows its steps, and sends to `hang`."""
    target = program("hung", "gil")
    target.wait_for_output("ready")
    wait_until(lambda: "not answering" in target.run("list").stdout, "silence")
    lines = target.run(str(target.pid)).stdout.split("\n")
    assert lines[0].endswith(": not answering")
    assert line_of(lines, "step").split()[1].rstrip(",") in {"1", "2"}
    assert f"probing {target.pid} hang" in line_of(lines, "next")


def test_an_ended_process_says_how_it_ended(program: Callable[..., Target]) -> None:
    """After kill -9 the last step is there, and what is said of the end."""
    target = program("hung", "sleep")
    target.wait_for_output("ready")
    target.kill(signal.SIGKILL)
    target.process.wait(DEADLINE_S)
    lines = target.run(str(target.pid)).stdout.split("\n")
    assert lines[0].endswith(": ended")
    assert "without a word" in " ".join(lines[2:5])
    assert "the last one on record" in line_of(lines, "step")
    assert "hang" in line_of(lines, "next")


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that nobody has prepared."""
    script = tmp_path / "plain.py"
    script.write_text("import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.05)\n")
    env = clean_env(tmp_path / "home")
    process = subprocess.Popen(
        [sys.executable, str(script)], env=env, cwd=tmp_path, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_process_without_an_agent_says_how_to_get_one(
    stranger: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """What the kernel knows, and the two commands that go on from there."""
    done = run_command(str(stranger.pid), env=clean_env(tmp_path / "home"), cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.split("\n")
    assert lines[0] == f"process {stranger.pid}: no agent"
    assert f"probing attach {stranger.pid}" in line_of(lines, "next")
    assert "resident of" in line_of(lines, "memory")


def test_without_a_word_the_processes_are_listed(training: Target) -> None:
    """Stdout has the processes, stderr three lines of help, and the exit code is 0."""
    done = training.run()
    assert done.returncode == 0
    assert str(training.pid) in done.stdout
    help_lines = done.stderr.strip().split("\n")
    assert len(help_lines) == 3
    assert all(line.startswith("probing ") for line in help_lines)


def test_without_a_process_it_says_how_to_begin(tmp_path: Path) -> None:
    """Nothing on stdout, and how to start or attach on stderr."""
    done = run_command(env=clean_env(tmp_path / "none"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "probing run train.py" in done.stderr
    assert "probing attach PID" in done.stderr


def test_a_job_is_a_grid_of_its_ranks(ranks: Job) -> None:
    """All ranks with their steps; then one is stopped, and stands out."""
    done = ranks.run("-t", "all")
    assert done.stdout.startswith("job "), done.stderr
    seen = "3 of 3 ranks seen: 3 training"  # one that answers late is told as such
    wait_until(lambda: seen in ranks.run("-t", "all").stdout, seen)
    stop(ranks.pid(1))
    try:
        grid = json.loads(ranks.run("-t", "all", "--format", "json").stdout)
        shown = ranks.run("-t", "all").stdout
    finally:
        os.kill(ranks.pid(1), signal.SIGCONT)
    states = {cell["rank"]: cell["state"] for cell in grid["cells"]}
    assert states[1] == "stopped"
    assert all(cell["step"] is not None for cell in grid["cells"])
    assert "probing -t all hang" in shown
    assert re.search(r"^ +1 +stopped ", shown, re.MULTILINE)


def test_a_rank_shows_the_others_of_its_job(ranks: Job) -> None:
    """The overview of one rank counts all."""
    lines = ranks.run("rank:0").stdout.split("\n")
    assert "rank 0 of 3" in lines[0]
    assert line_of(lines, "ranks").split(None, 1)[1].startswith("3 of 3 seen")
