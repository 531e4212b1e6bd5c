"""Which file systems a record may lie on, as the kernel tells of mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probing.linux.file_systems import file_system_of, unfit_for_records
from probing.rundir.places import choose
from probing.settings import Settings

pytestmark = pytest.mark.anypython

TABLE = r"""22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:30 / /home rw,relatime shared:7 - nfs4 server:/home rw
24 22 0:31 / /home/me/scratch rw - xfs /dev/sdb rw
25 22 0:32 / /a\040b rw - fuse.sshfs host: rw
26 22 0:33 / /pool rw - zfs pool rw
27 22 0:34 / /over rw - ext4 /dev/sdc rw
28 22 0:35 / /over rw - cifs //server/share rw
damaged
"""
CASES = {
    "/var/x": ("ext4", False),
    "/home/me/x": ("nfs4", True),
    "/homely": ("ext4", False),
    "/home/me/scratch": ("xfs", False),
    "/a b/c": ("fuse.sshfs", True),
    "/pool": ("zfs", True),
    "/over/x": ("cifs", True),
}


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    """The table, in a file."""
    path = tmp_path / "mountinfo"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize("path", CASES)
def test_the_file_system_of_a_path(path: str, mounts: Path) -> None:
    """The innermost mount counts, the last of one place, and escaped names are read."""
    kind, is_unfit = CASES[path]
    assert file_system_of(Path(path), mounts=mounts) == kind
    why = unfit_for_records(Path(path), mounts=mounts)
    assert (why is not None) == is_unfit
    assert why is None or why.startswith(f"{kind}, where ")


def test_nothing_is_refused_where_the_kernel_does_not_tell(tmp_path: Path) -> None:
    """No table of mounts: every place may be used."""
    assert unfit_for_records(tmp_path, mounts=tmp_path / "none") is None


def test_a_home_that_is_unfit_is_not_used(mounts: Path, tmp_path: Path) -> None:
    """The next place takes the record; who asks finds it by the same rule."""
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    far, near = Settings(home="/home/me/x"), Settings(home="/home/me/scratch/x")
    got = choose(near, runtime_dir=None, uid=os.getuid() + 1, mounts=mounts)
    assert got == (Path("/home/me/scratch/x"), ())
    path, ((passed, why),) = choose(far, runtime_dir=str(runtime), mounts=mounts)
    assert (path, passed) == (runtime / "probing", Path("/home/me/x"))
    assert "a mapped file there can kill the training" in why
    table = TABLE + f"29 22 0:36 / {runtime} rw - lustre x rw\n"
    mounts.write_text(table)
    found = choose(far, runtime_dir=str(runtime), uid=7, memory_dir=str(tmp_path), mounts=mounts)
    assert found.path == tmp_path / "probing-7"
