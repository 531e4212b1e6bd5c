"""What the doctor says of the machine below a training: quotas, other processes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from probing.diagnosis.doctor.rules.machine import throttled_between
from probing.linux.processors import (
    Throttling,
    find_throttling,
    processor_times,
    users_between,
)
from tests.harness.targets import wait_until

from .made import facts, signs, steps

pytestmark = pytest.mark.anypython

_MOUNT = "41 31 0:38 / {} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
_MOUNT_1 = "35 31 0:32 / {} rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"


def _put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def _proc(folder: Path, membership: str, mounts: str) -> str:
    _put(folder / "proc/7", cgroup=membership)
    _put(folder / "proc/self", mountinfo=mounts)
    return str(folder / "proc")


def test_the_group_that_is_held_back_most_is_found(tmp_path: Path) -> None:
    """Of the groups around a process the one whose quota bites, with the quota."""
    top = tmp_path / "top"
    _put(top / "pod", cpu__stat="nr_periods 900\nnr_throttled 450\n", cpu__max="50000 100000\n")
    _put(top / "pod/job", cpu__stat="nr_periods 0\nnr_throttled 0\n", cpu__max="max 100000\n")
    proc = _proc(tmp_path, "0::/pod/job\n", _MOUNT.format(top))
    assert find_throttling(7, proc=proc) == Throttling(900, 450, 0.5)


def test_version_1_has_its_own_files(tmp_path: Path) -> None:
    """The controller of processors is mounted by itself; without a quota there is none."""
    top = tmp_path / "cpu"
    _put(top / "job", cpu__stat="nr_periods 10\nnr_throttled 1\n", cpu__cfs_quota_us="-1\n",
         cpu__cfs_period_us="100000\n")  # fmt: skip
    proc = _proc(tmp_path, "4:memory:/job\n3:cpu,cpuacct:/job\n", _MOUNT_1.format(top))
    assert find_throttling(7, proc=proc) == Throttling(10, 1, None)
    assert find_throttling(8, proc=proc) is None


def test_a_quota_that_bites_now_is_certain() -> None:
    """It is told by the periods between two looks, not by those of long ago."""
    before = Throttling(1000, 200, 0.5)
    found = list(throttled_between(before, Throttling(1010, 209, 0.5)))
    assert [sign.certainty for sign in found] == ["certain"]
    assert "its quota of 0.5 processors in 90 % of all periods" in found[0].summary
    assert not list(throttled_between(before, Throttling(1010, 202, 0.5)))
    assert not list(throttled_between(before, before))


def test_a_quota_that_hardly_ever_bit_is_not_looked_at_twice(tmp_path: Path) -> None:
    """A command that uses up the quota in the moment of the look is no fault of the training."""
    top = tmp_path / "top"
    _put(top / "job", cpu__stat="nr_periods 900\nnr_throttled 9\n", cpu__max="50000 100000\n")
    proc = _proc(tmp_path, "0::/job\n", _MOUNT.format(top))
    assert not signs("throttled", facts(is_here=True, pid=7, proc=proc))


def test_another_machine_is_not_looked_at() -> None:
    """What is true of this moment is no fact of a process elsewhere."""
    there = facts()
    there.member = dataclasses.replace(there.member, host="node2", endpoint="node2:8080")
    with pytest.raises(NotLookedAt, match="it runs on node2, and only a command there can look"):
        signs("throttled", there)
    with pytest.raises(NotLookedAt, match="the process has ended"):
        signs("throttled", facts(is_alive=False))


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps a processor busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass", "secret"]) as process:
        yield process
        process.kill()


def test_who_uses_the_processors_is_named(busy: subprocess.Popen[bytes]) -> None:
    """By number and program, without arguments, which may have secrets."""
    before = processor_times()
    wait_until(lambda: processor_times().get(busy.pid, 0) > before.get(busy.pid, 0) + 0.2, "work")
    users = {user.pid: user for user in users_between(before, processor_times(), 1.0, but=())}
    assert users[busy.pid].processors >= 0.2
    assert users[busy.pid].command.startswith("python")
    assert "secret" not in users[busy.pid].command
    assert busy.pid not in {
        user.pid for user in users_between(before, processor_times(), 1.0, but={busy.pid})
    }


@pytest.mark.slow
def test_what_the_command_starts_is_no_other(busy: subprocess.Popen[bytes]) -> None:
    """The command and its own processes are not named as those who crowd the training."""
    made = facts({"steps": steps(60, cpu_s=0.03, involuntary_switches=20)}, is_here=True)
    found = signs("crowded-processors", made)
    assert [sign.certainty for sign in found] == ["possible"]
    assert f"process {busy.pid} " not in found[0].summary
