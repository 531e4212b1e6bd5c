"""Real processes for the tests: started with a handshake, asked with a deadline, always reaped."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from probing.client.connecting import connect
from probing.errors import NotAnswering
from probing.ring import peek as ring_peek
from probing.rundir.folders import ProcessFolder, RunDirectory
from tests.harness import warm

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ROOT / "tests"
DEADLINE_S = 120.0
_SETTINGS = {"PROBING_QUERY_TIMEOUT_S": f"{DEADLINE_S:g}"}
"""What targets are told beyond the defaults: an SQL worker stands behind all else on the machine,
and where tests keep that busy may take longer to start than the 30 s that a statement has."""
if "TESTS_NATIVE" in os.environ:  # have module calls of all targets recorded by Python, as at night
    _SETTINGS["PROBING_NATIVE"] = os.environ["TESTS_NATIVE"]


def wait_until(fact: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Return the first true value of `fact`, or fail once the deadline has passed."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = fact()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {deadline_s:g} s: {what}")


def stop(pid: int) -> None:
    """Stop a process by a signal, and wait until each of its threads stands still.

    On a busy machine a thread runs on for a while, until it has its turn and sees the signal.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: set(_thread_states(pid)) == {"T"}, f"the stop of process {pid}")


def _thread_states(pid: int) -> Iterator[str]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


def clean_env(home: Path, **extra: str) -> dict[str, str]:
    """This environment without any setting of probing, but with a run directory of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PROBING", "XDG_RUNTIME"))}
    env = {k: v for k, v in env.items() if k not in warm.at_start(env)} | warm.at_start()
    env.update(
        PROBING_HOME=str(home),
        XDG_CONFIG_HOME=str(home / "config"),  # nobody's own settings file
        PROBING_RINGS_MIB="64",  # many processes at once, on a disk that may have little room
        PROBING_PAGER="cat",
        PYTHONPATH=str(ROOT),
        PYTHONUNBUFFERED="1",
        OMP_NUM_THREADS="1",
        COLUMNS="120",
    )
    env.update(_SETTINGS)
    env.update(extra)
    return env


@contextlib.contextmanager
def recorded_whole() -> Iterator[None]:
    """Have targets leave nothing out of their record, which of a tiny model they else do."""
    _SETTINGS["PROBING_OVERHEAD"] = "100000"
    try:
        yield
    finally:
        del _SETTINGS["PROBING_OVERHEAD"]


def start(argv: Sequence[str], *, is_warm: bool | None = None, **how: Any) -> warm.Process:
    """Start a Python program, warm where it imports torch at its top.

    Args:
        is_warm: Whether to start it from a process that has imported torch; by its text if None.
    """
    if is_warm is None:
        is_warm = any(word.endswith(".py") and imports_torch(word) for word in argv[1:])
    if is_warm:
        return warm.start(argv, **how)
    how["env"] = warm.without_counting(how["env"])
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, **how)


@functools.cache
def program_path(name: str) -> Path:
    """The program of that name: beside the tests that use it, or in ``tests/programs``."""
    (found,) = {*TESTS.glob(f"programs/{name}.py"), *TESTS.glob(f"*/programs/{name}.py")}
    return found


@functools.cache
def imports_torch(script: str) -> bool:
    """Whether a script imports torch first of all, whatever it is asked to do."""
    return re.search(r"^(import|from) torch\b", Path(script).read_text(), re.MULTILINE) is not None


def run_command(
    *words: str,
    cwd: Path,
    env: Mapping[str, str],
    input: str | None = None,
    timeout_s: float = DEADLINE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a probing command, from a process that has imported what commands import."""
    argv = [sys.executable, "-m", "probing", *words]
    with contextlib.ExitStack() as stack:
        given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write((input or "").encode())
        given.seek(0)
        stdin = subprocess.DEVNULL if input is None else given
        how: dict[str, Any] = {"stdin": stdin, "stdout": out, "stderr": err}
        process = warm.start(argv, cwd=cwd, env=env, kind="commands", **how)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(DEADLINE_S)
            raise
        texts = [_text(stream) for stream in (out, err)]
    return subprocess.CompletedProcess(argv, code, *texts)


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


class Target:
    """A Python process under test.

    Attributes:
        pid: Its process id.
        env: The environment in which commands find it.
    """

    def __init__(self, argv: list[str], home: Path, cwd: Path, **extra: str) -> None:
        self.home = home
        self.cwd = cwd
        self.env = clean_env(home)
        self.log = cwd / "log.txt"
        with self.log.open("wb") as log:
            self.process = start(
                argv, cwd=cwd, env=clean_env(home, **extra), stdout=log, stderr=subprocess.STDOUT
            )
        self.pid = self.process.pid

    @property
    def output(self) -> str:
        """All it has printed so far."""
        return self.log.read_text("utf-8", "replace")

    @property
    def folder(self) -> ProcessFolder:
        """Its run folder."""
        found = self.find_folder()
        assert found is not None, f"no run folder; it printed: {self.output}"
        return found

    def find_folder(self) -> ProcessFolder | None:
        """Its run folder, once it is there with a card."""
        for folder in RunDirectory(self.home).folders():
            if folder.pid == self.pid and folder.read_card() is not None:
                return folder
        return None

    def wait_for_output(self, text: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until it has printed a text."""
        wait_until(lambda: self._alive_or_done() and text in self.output, text, deadline_s)

    def wait_for_agent(self) -> None:
        """Wait until its card is in place."""
        wait_until(lambda: self._alive_or_done() and self.find_folder(), "a run folder")

    def wait_for_server(self) -> None:
        """Wait until its agent has loaded what answers, which on a busy machine takes seconds."""
        self.wait_for_agent()
        process = connect(str(self.folder.path), timeout_s=DEADLINE_S)

        def answers() -> bool:
            try:
                process.live("sources")
            except NotAnswering:  # it was not its turn for long
                return False
            return True

        wait_until(lambda: self._alive_or_done() and answers(), "an answer")

    def wait_for_step(self, step: int) -> None:
        """Wait until that training step has begun."""
        self.wait_for_agent()
        wait_until(lambda: self._alive_or_done() and self.step() >= step, f"step {step}")

    def step(self) -> int:
        """The newest step on record; -1 before the first."""
        row = ring_peek.last_step(self.folder)
        return -1 if row is None else int(row.values["step"] or 0)

    def run(
        self, *args: str, input: str | None = None, timeout_s: float = DEADLINE_S, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a probing command against the same run directory."""
        env = {**self.env, **extra}
        return run_command(*args, cwd=self.cwd, env=env, input=input, timeout_s=timeout_s)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def reap(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE_S)

    def _alive_or_done(self) -> bool:
        """Fail at once, with what it printed, when it has died of something."""
        code = self.process.poll()
        assert code in (None, 0), f"exit code {code}; it printed: {self.output}"
        return True


def start_program(
    name: str, *args: str, home: Path, cwd: Path, python: str = sys.executable, **extra: str
) -> Target:
    """Start a program of ``tests/programs`` with the agent watching."""
    argv = [python, "-m", "probing._run", str(program_path(name)), *args]
    return Target(argv, home, cwd, **extra)


def start_training(*args: str, home: Path, cwd: Path, **extra: str) -> Target:
    """Start the bundled training, small, and wait for its third step.

    It rests most of the time, as other tests want to run, too: who waits for many steps gives
    `--pause`, and who needs a checkpoint soon `--checkpoint-every`.
    """
    small = ["--layers", "2", "--dim", "64", "--context", "32"]
    small += ["--checkpoint-every", "20", "--pause", "0.3"]
    script = str(ROOT / "examples" / "train_gpt.py")
    argv = [sys.executable, "-m", "probing._run", script, *small, *args]
    target = Target(argv, home, cwd, **extra)
    target.wait_for_step(3)
    return target
