"""Starts scripts, waits for what they write, ends them, and runs commands as a person does."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.harness import warm
from tests.harness.targets import clean_env, run_command
from tests.trainings.catalog import Training
from tests.trainings.truths import Account, read_account

# A machine that is shared and loaded takes a multiple of what an idle one does.
DEADLINE_S = 120.0


class ScriptFailedError(Exception):
    """A script ended otherwise than a training does that nobody looks at."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a command answered.

    Attributes:
        words: The command, as it was typed.
        code: Its exit code.
        out: What it printed.
        err: What it printed as errors and notes.
        start_ns: When it was typed, since the epoch.
        end_ns: When it had answered.
    """

    words: str
    code: int
    out: str
    err: str
    start_ns: int
    end_ns: int

    @property
    def text(self) -> str:
        """All of it, as a person sees it."""
        return f"$ {self.words}\n{self.out}{self.err}exit code {self.code}"


class Running:
    """The processes of one script."""

    def __init__(
        self,
        training: Training,
        folder: Path,
        *,
        probing: bool,
        steps: int | None = None,
        peaks: bool = False,
    ) -> None:
        self.training = training
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._truth = folder / "truth.jsonl"
        self._logs = [folder / f"output.{rank}.txt" for rank in range(training.ranks)]
        self._environment = _environment()
        self._environment["TRAINING_TRUTH"] = str(self._truth)
        if steps is not None:
            self._environment["TRAINING_STEPS"] = str(steps)
        if peaks:
            self._environment["TRAINING_PEAKS"] = "1"
        if training.ranks > 1:
            self._environment |= {"WORLD_SIZE": str(training.ranks), "MASTER_ADDR": "127.0.0.1"}
            self._environment["MASTER_PORT"] = str(_free_port())
        self._processes = [self._start(rank, probing=probing) for rank in range(training.ranks)]

    def _start(self, rank: int, *, probing: bool) -> warm.Process:
        own = dict(self._environment)
        if self.training.ranks > 1:  # as torchrun says it to its workers
            own |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        words = ["-m", "probing._run"] if probing else []  # what `probing run` does
        with self._logs[rank].open("wb") as log:
            return warm.start(
                [sys.executable, *words, str(self.training.path)],
                cwd=self.folder,
                env=own,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pids(self) -> list[int]:
        """The processes, by rank."""
        return [process.pid for process in self._processes]

    @property
    def is_alive(self) -> bool:
        """Whether all of them run."""
        return all(process.poll() is None for process in self._processes)

    def account(self, rank: int = 0) -> Account:
        """What the script has written of itself by now."""
        path = self._truth
        if self.training.ranks > 1:
            path = path.with_name(f"{path.name}.{rank}")
        account = read_account(path)
        if account is None:
            raise ScriptFailedError(f"{self.training.name} has written nothing: {self.ending()}")
        return account

    def done(self) -> int:
        """How many steps it has done by now."""
        with contextlib.suppress(ScriptFailedError):
            return len(self.account().steps)
        return 0

    def wait_steps(self, more: int, *, within: float = DEADLINE_S) -> Account:
        """Wait until it has done so many more steps."""
        wanted, deadline = self.done() + more, time.monotonic() + within
        while self.done() < wanted:
            if not self.is_alive:
                raise ScriptFailedError(f"{self.training.name} has ended: {self.ending()}")
            if time.monotonic() > deadline:
                raise ScriptFailedError(
                    f"{self.training.name} made no {more} steps in {within:.0f} s: {self.ending()}"
                )
            time.sleep(0.05)
        return self.account()

    def wait_end(self) -> list[Account]:
        """Wait until it has ended by itself, and give the accounts of its ranks."""
        deadline = time.monotonic() + DEADLINE_S
        for process in self._processes:
            try:
                code = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise ScriptFailedError(f"{self.training.name} hangs: {self.ending()}") from None
            if code:
                raise ScriptFailedError(f"{self.training.name} has failed: {self.ending()}")
        return [self.account(rank) for rank in range(self.training.ranks)]

    def ending(self) -> str:
        """Say how it has ended, and its last words."""
        codes = ", ".join(_ended(process.poll()) for process in self._processes)
        tails = [log.read_text(errors="replace")[-1500:].strip() for log in self._logs]
        return "\n".join([codes, *(tail for tail in tails if tail)])

    def kill(self) -> None:
        """End every process of it, data workers included."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def running(
    training: Training,
    folder: Path,
    *,
    probing: bool,
    steps: int | None = None,
    peaks: bool = False,
) -> Iterator[Running]:
    """Run a script for as long as the block."""
    script = Running(training, folder, probing=probing, steps=steps, peaks=peaks)
    try:
        yield script
    finally:
        script.kill()


def command(*words: str, within: float = DEADLINE_S) -> Said:
    """Type a command of probing, and wait for its answer."""
    typed = " ".join(["probing", *words])
    start_ns = time.time_ns()
    try:
        done = run_command(*words, cwd=Path.cwd(), env=_environment(), timeout_s=within)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, err = -1, "", f"no answer within {within:.0f} s\n"
    return Said(words=typed, code=code, out=out, err=err, start_ns=start_ns, end_ns=time.time_ns())


def _environment() -> dict[str, str]:
    """Give the variables of a script or a command; one thread, so that its times are its own."""
    home = Path(os.environ["PROBING_HOME"])
    return clean_env(home, TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")


def _free_port() -> int:
    """One below those that the kernel gives to others meanwhile, from 32768 on."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def _ended(code: int | None) -> str:
    if code is None:
        return "still running"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
