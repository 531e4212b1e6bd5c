"""The descriptors that the agent takes, and those that it leaves to the training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from probing.rundir.folders import RunDirectory
from tests.harness.targets import DEADLINE_S, clean_env, program_path

pytestmark = pytest.mark.torch


def run(tmp: Path, limit: int, *, probed: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the program with a limit on its files."""
    argv = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", sys.executable]
    argv += ["-m", "probing._run"] * probed + [str(program_path("many_files"))]
    env = clean_env(tmp / "home", **({"PROBING": "1"} if probed else {}))
    return subprocess.run(
        argv, cwd=tmp, env=env, capture_output=True, text=True, timeout=2 * DEADLINE_S
    )


@pytest.mark.parametrize("limit", [32, 40, 64])
def test_a_process_with_few_files_keeps_them(tmp_path: Path, limit: int) -> None:
    """The agent takes none of them, and leaves word of why it is not there."""
    done = run(tmp_path, limit)
    assert done.returncode == 0, done.stderr
    assert "opened 20" in done.stdout
    (folder,) = RunDirectory(tmp_path / "home").folders()
    card = folder.read_card()
    assert card is not None
    assert f"of the {limit} files that the process may have open only" in card.problems[0]


def test_an_agent_that_records_takes_few(tmp_path: Path) -> None:
    """No ring keeps a descriptor: all that the agent has are sixteen at the most."""
    alone = run(tmp_path, 256, probed=False).stdout.split()
    probed = run(tmp_path, 256).stdout.split()
    assert int(probed[1]) - int(alone[1]) <= 16, (alone, probed)
