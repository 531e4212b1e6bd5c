"""Starting the programs of the zoo, waiting for the moment to look, and ending them.

A training of several ranks is started as torchrun does it, by variables. Every process has a group
of its own, so that its workers end with it. Two threads read what the ranks print: the step is
taken from there.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping

from tests.zoo.table import Expectation

_STEP = re.compile(r"\bstep\D{0,3}(\d+)")
_GRACE_S = 3.0
_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


class NotThere(Exception):
    """The training did not come to the point where it is to be looked at."""


class Training:
    """All ranks of one program, from their start to their end."""

    def __init__(self, expected: Expectation, folder: pathlib.Path, home: pathlib.Path) -> None:
        self.expected = expected
        self.step = -1
        self._log = (folder / "training.log").open("w", buffering=1)
        self._lock = threading.Lock()
        self._began = time.monotonic()
        work = folder / "work"
        work.mkdir(exist_ok=True)
        self.environment = _environment(expected, home)
        self.processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        try:
            for variables in _ranks(expected):
                self.processes.append(self._start(variables, work))
        except OSError:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The processes of the ranks, in the order of the ranks."""
        return [process.pid for process in self.processes]

    def wait_until_worth_a_look(self, deadline_s: float) -> None:
        """Wait for the step that the table names, and then for as long as it says.

        Raises:
            NotThere: It has ended before, or has not come there within the deadline.
        """
        deadline = time.monotonic() + deadline_s
        while self.step < self.expected.look_after_step:
            if all(process.poll() is not None for process in self.processes):
                for reader in self._readers:  # which may be behind on a busy machine
                    reader.join(_GRACE_S)
                if self.step >= self.expected.look_after_step:
                    break
                raise NotThere(f"It ended at step {self.step}; training.log says why.")
            if time.monotonic() > deadline:
                raise NotThere(f"It was at step {self.step} after {deadline_s:.0f} s.")
            time.sleep(0.1)
        if self.expected.start == "dead":
            self._wait_for_end(deadline)
        else:
            time.sleep(self.expected.wait_s)

    def close(self) -> None:
        """End all ranks and what they have started, the friendly way first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
            if number is signal.SIGTERM:
                self._wait_for_ends(_GRACE_S)
        self._wait_for_ends(None)
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()
        for reader in self._readers:
            reader.join(_GRACE_S)  # not for ever: a stranger may have inherited the pipe
        with self._lock:
            self._log.close()

    def _start(self, variables: Mapping[str, str], work: pathlib.Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(self.expected.path)],
            env={**self.environment, **variables},
            cwd=work,
            stdin=subprocess.PIPE,  # a debugger that reads from it waits, as on a terminal
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        rank = variables.get("RANK", "0")
        reader = threading.Thread(target=self._read, args=(process, rank), daemon=True)
        reader.start()
        self._readers.append(reader)
        return process

    def _read(self, process: subprocess.Popen[str], rank: str) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._note(rank, line)

    def _note(self, rank: str, line: str) -> None:
        with self._lock:
            if not self._log.closed:
                self._log.write(f"{time.monotonic() - self._began:8.2f} [{rank}] {line}")
            if found := _STEP.search(line):
                self.step = max(self.step, int(found[1]))

    def _wait_for_end(self, deadline: float) -> None:
        if self.expected.signal:
            time.sleep(self.expected.wait_s)
            for process in self.processes:
                process.send_signal(signal.Signals[self.expected.signal])
        for process in self.processes:
            try:
                process.wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise NotThere(f"Process {process.pid} has not ended.") from None

    def _wait_for_ends(self, timeout_s: float | None) -> None:
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)


def _environment(expected: Expectation, home: pathlib.Path) -> dict[str, str]:
    environment = dict(os.environ)
    search = [str(_REPOSITORY), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, search))
    beside = pathlib.Path(sys.executable).parent  # the command `probing` of this Python
    environment["PATH"] = os.pathsep.join([str(beside), environment.get("PATH", "")])
    environment["PROBING"] = "0" if expected.start == "late" else "1"
    environment["PROBING_HOME"] = str(home)
    environment["OMP_NUM_THREADS"] = "1"  # as torchrun sets it: one core for each process
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def _ranks(expected: Expectation) -> Iterator[dict[str, str]]:
    """Yield the variables of each rank; none for a program that is started alone."""
    if expected.ranks == 1:
        yield {}
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for rank in range(expected.ranks):
        yield {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(expected.ranks),
            "LOCAL_WORLD_SIZE": str(expected.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": expected.name.replace("_", "-"),
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
        }
