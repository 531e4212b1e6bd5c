"""Where a record is not kept, and what keeps a file that is mapped as long as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from probing.rundir.folders import RunDirectory
from tests.harness.targets import DEADLINE_S, clean_env, program_path

pytestmark = pytest.mark.torch


def run(tmp: Path, kind: str, program: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a script where the kernel tells that the run directory is on that file system."""
    (tmp / "runtime").mkdir()
    mounts = tmp / "mountinfo"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 x rw\n2 1 0:9 / {tmp / 'home'} rw - {kind} x rw\n")
    shell = f'mount --bind {mounts} /proc/$$/mountinfo && exec "$@"'
    user = [] if os.getuid() == 0 else ["--map-root-user", "--user"]
    argv = ["unshare", "--mount", *user, "sh", "-c", shell, "sh", *program]
    env = clean_env(tmp / "home", PROBING="1", XDG_RUNTIME_DIR=str(tmp / "runtime"))
    return subprocess.run(
        argv, cwd=tmp, env=env, capture_output=True, text=True, timeout=2 * DEADLINE_S
    )


def test_a_network_file_system_gets_no_record(tmp_path: Path) -> None:
    """It lies in the next place, and the card says why."""
    program = [sys.executable, "-m", "probing._run", str(program_path("many_files"))]
    done = run(tmp_path, "nfs4", program)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "home").exists()
    (folder,) = RunDirectory(tmp_path / "runtime" / "probing").folders()
    card = folder.read_card()
    assert card is not None
    (problem,) = card.problems
    assert "not in PROBING_HOME" in problem
    assert "is on nfs4, where a server or a daemon has to answer" in problem
    assert (folder.path / "torch_trace.ring").stat().st_size > 8192


CUT = """
import os, subprocess, tempfile
from pathlib import Path
from probing.ring import earlier_record
from probing.ring.writer import RingWriter
from probing.tables import STEPS
with tempfile.TemporaryDirectory() as place:
    if os.getuid() == 0:
        os.chown(place, 65534, -1)
        os.setresuid(65534, 65534, 0)
    path = Path(place, "steps.ring")
    ring = RingWriter(path, STEPS, 64)
    size = path.stat().st_size
    done = subprocess.run(["sh", "-c", f": > {path}"], stderr=subprocess.DEVNULL)
    assert done.returncode != 0 and path.stat().st_size == size
    ring.count_dropped()
    ring.close()
    again = RingWriter(path, STEPS, 64)
    again.count_dropped()
    again.close()
    print("whole", oct(path.stat().st_mode & 0o777))
"""


def test_the_owner_does_not_cut_a_ring_by_mistake(tmp_path: Path) -> None:
    """To write to the file from a shell fails, so that no mapping of it ends in a signal."""
    argv = [sys.executable, "-c", CUT]
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        env=clean_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.stdout == "whole 0o400\n", done.stderr
