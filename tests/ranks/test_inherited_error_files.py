"""Only the process that torchrun has started believes the error file in its environment."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.messages.card import Card
from probing.postmortem.endings import WORDLESS, ending_of
from probing.rundir.folders import ProcessFolder, RunDirectory
from tests.harness.targets import DEADLINE_S, clean_env, program_path, wait_until
from tests.ranks.programs.given import NAME, VALUE


@pytest.mark.anypython
@pytest.mark.parametrize(
    ("steps", "is_own"),
    [
        ("", True),
        ("python", False),
        ("bash", False),
        ("bash python", False),
        ("fork", False),
        ("spawn", False),
        ("orphan", False),
        ("function", True),
        ("function python", False),
        ("function bash", False),
        ("function fork", False),
        ("function spawn", False),
    ],
)
def test_what_a_rank_starts_inherits_the_variable(steps: str, is_own: bool) -> None:
    """As a child, by a shell, or left behind; the launcher of a rank is this very process."""
    words = steps.split()
    env = {name: value for name, value in os.environ.items() if name != NAME}
    if "function" not in words:
        env[NAME] = VALUE
    done = subprocess.run(
        [sys.executable, str(program_path("given")), *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        start_new_session=True,  # as torchrun does
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{is_own}\n", "")


READY = re.compile(r"^ready (\d) (\d+) (\d+)$", re.MULTILINE)


@pytest.fixture
def torchrun(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The real one with two ranks and what each starts, which all have an agent."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    words += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    env = clean_env(tmp_path / "home", PROBING="all")
    command = [*words, str(program_path("family_rank"))]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait()
    for _, *pids in READY.findall((tmp_path / "log").read_text()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.mark.torch
@pytest.mark.slow
def test_what_a_rank_of_torchrun_has_started_ended_by_no_error_of_the_rank(
    torchrun: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """It was killed; the rank failed after that, and wrote so to the file of both."""
    log = tmp_path / "log"
    wait_until(lambda: len(READY.findall(log.read_text())) == 2, "ranks")
    found = {rank: (int(own), int(child)) for rank, own, child in READY.findall(log.read_text())}

    def folders() -> dict[int, ProcessFolder]:
        return {one.pid: one for one in RunDirectory(tmp_path / "home").folders()}

    def card_of(pid: int) -> Card | None:
        return folders()[pid].read_card() if pid in folders() else None

    wait_until(lambda: all(card_of(pid) for pids in found.values() for pid in pids), "the agents")
    cards = {pid: card_of(pid) for pids in found.values() for pid in pids}
    files = [[getattr(cards[pid], "error_file", None) for pid in pids] for pids in found.values()]
    assert all(own and child is None for own, child in files), "only ranks have one"
    (tmp_path / "go").touch()
    assert torchrun.wait(DEADLINE_S) == 1
    own, child = (ending_of(folders()[pid], []) for pid in found["1"])
    assert own is not None
    assert child is not None
    assert "ValueError: a label is out of range: 1007" in own.certain[0]
    assert child.certain[0].startswith(WORDLESS)
