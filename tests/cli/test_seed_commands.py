"""The commands that users wrote down for debugging a training run, run word for word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.targets import DEADLINE_S, ROOT, Target, start_training

pytestmark = pytest.mark.torch

DOCUMENT = Path(__file__).parent / "data" / "training-debugging.md"
TOKEN = "0123456789abcdef" * 4


def commands() -> list[str]:
    """Every command of the document, with the comment lines that follow it."""
    blocks = re.findall(r"```bash\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    found = []
    for block in blocks:
        starts = [m.start() for m in re.finditer(r"^probing ", block, re.MULTILINE)]
        for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
            found.append(block[start:end].strip())
    return found


COMMANDS = commands()


def name_of(command: str) -> str:
    """A short name of a command, for the test's id."""
    return re.sub(r"\W+", " ", command.removeprefix("probing $ENDPOINT "))[:60].strip()


class Job:
    """The bundled training, listening where the document says that its ranks do."""

    def __init__(self, tmp: Path) -> None:
        self.ranks = []
        # The port is the document's; another run of this test beside it has other addresses.
        pid = os.getpid()
        hosts = [f"127.{64 * n + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}" for n in (1, 2)]
        for rank, host in enumerate(hosts):
            cwd = tmp / f"rank{rank}"
            cwd.mkdir()
            self.ranks.append(
                start_training(
                    *("--checkpoint-every", "2"),  # the document loads it
                    home=tmp / "home",
                    cwd=cwd,
                    PROBING_LISTEN=f"{host}:8080",
                    PROBING_TOKEN=TOKEN,
                    PROBING_ALLOW_EVAL="1",
                    PROBING_HOSTS=f"node{rank + 1}:8080",
                    RANK=str(rank),
                )
            )
        self.bin = tmp / "bin"
        self.bin.mkdir()
        script = self.bin / "probing"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m probing "$@"\n')
        script.chmod(0o755)
        self.hosts = tmp / "hosts"
        self.hosts.write_text(f"127.0.0.1 localhost\n{hosts[0]} node1\n{hosts[1]} node2\n")

    @property
    def first(self) -> Target:
        """Rank 0."""
        return self.ranks[0]

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a user's shell would, on a machine that knows node1 and node2."""
        env = {
            **self.first.env,
            "ENDPOINT": str(self.first.pid),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PROBING_TOKEN": TOKEN,
        }
        argv = ["bash", "-c", command]
        if "node1" in command or "node2" in command:
            mount = f'mount --bind {self.hosts} /etc/hosts && exec "$@"'
            user = [] if os.getuid() == 0 else ["--map-root-user", "--user"]
            argv = ["unshare", "--mount", *user, "sh", "-c", mount, "sh", *argv]
        return subprocess.run(
            argv, cwd=self.first.cwd, env=env, capture_output=True, text=True, timeout=DEADLINE_S
        )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Two ranks of the bundled training."""
    made = Job(tmp_path_factory.mktemp("job"))
    yield made
    for rank in made.ranks:
        rank.reap()


def test_the_document_is_read_whole() -> None:
    """No command of the document is missed: 19 of them start with `probing`."""
    lines = [x for x in DOCUMENT.read_text().splitlines() if x.startswith("probing ")]
    assert len(COMMANDS) == len(lines) == 19


NVIDIA = "nvidia-smi"
EXPECTED = {
    "ENDPOINT backtrace": r'MainThread" \(main',
    "SELECT func": r"^func +file +lineno +depth\n─+\n(.+ \d+ +\d+\n?){10}$",
    "threading.enumerate": r"MainThread: alive=True",
    "num_workers": r"DataLoader workers: 2\nPrefetch factor: 2",
    "Waiting for barrier": r"^$",
    "has_nan": r"^$",
    "grad_clip": r"Grad clip value: 1\.0",
    "clip_grad_norm_": r"tensor\(",
    "AVG(duration)": r"GPT +(forward|step)",
    "memory_range": r"memory_range",
    "Cleanup complete": r"Cleanup complete",
    "Emergency checkpoint": r"Emergency checkpoint saved",
    "torch.load": r"Keys: dict_keys.*\nStep: \d+",
    "Group {i}": r"Group 0: lr=.*weight_decay=0\.1\nGroup 1: lr=.*weight_decay=0",
    "*= 0.1": r"New LR: \d",
    "Rank 0 step": r"Rank 0 step: \d+",
    "Rank 1 step": r"Rank 1 step: \d+",
    "all_reduce": r"^$",
}
"""What the answer to the command with that piece of text must look like."""


@pytest.mark.parametrize("command", COMMANDS, ids=name_of)
def test_a_users_command_word_for_word(command: str, job: Job) -> None:
    """The command ends well and its answer is the right one."""
    done = job.shell(command)
    if NVIDIA in command and shutil.which(NVIDIA) is None:
        assert done.returncode == 1
        assert "FileNotFoundError: [Errno 2] No such file or directory: 'nvidia-smi'" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    wanted = [pattern for key, pattern in EXPECTED.items() if key in command]
    if NVIDIA not in command:
        assert len(wanted) == 1, "every command has exactly one expectation"
        assert re.search(wanted[0], done.stdout.strip()), done.stdout + done.stderr


def test_the_training_goes_on_afterwards(job: Job) -> None:
    """After all of these commands both ranks still make steps, and saved what they were told."""
    for rank in job.ranks:
        rank.wait_for_step(rank.step() + 2)
    if not (job.first.cwd / "emergency_checkpoint.pt").exists():
        command = next(c for c in COMMANDS if "emergency_checkpoint" in c)
        assert job.shell(command).returncode == 0
    assert (job.first.cwd / "emergency_checkpoint.pt").stat().st_size > 10_000
    assert (ROOT / "examples" / "train_gpt.py").exists()
