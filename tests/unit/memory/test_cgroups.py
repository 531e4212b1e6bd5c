"""Memory cgroups of both versions, from files as kernels write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from probing.linux.cgroup import (
    CgroupPaths,
    find_cgroup,
    parse_bytes,
    parse_file_cache,
    parse_pressure,
)
from probing.linux.host_memory import sentence_of
from probing.linux.kernel_files import read_text, sizes_in

pytestmark = pytest.mark.anypython

GIB = 1 << 30
Find = Callable[[str, str], CgroupPaths | None]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """Finds the cgroup of process 7, whose membership and mounts are given."""

    def look(membership: str, mounts: str) -> CgroupPaths | None:
        for name, text in (("7/cgroup", membership), ("self/mountinfo", mounts)):
            path = tmp_path / "proc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return find_cgroup(7, proc=str(tmp_path / "proc"))

    return look


def put(folder: Path, **files: str) -> None:
    """The files of a cgroup; the dot of their names is written as `__`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def version_2(top: Path, *, root: str = "/") -> str:
    """A line of mountinfo."""
    return f"41 31 0:38 {root} {top} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def version_1(top: Path, *, root: str = "/") -> str:
    """A line of mountinfo."""
    return f"35 31 0:32 {root} {top} rw,relatime - cgroup cgroup rw,memory\n"


def test_version_2_with_the_limit_further_up(tmp_path: Path, find: Find) -> None:
    """The group around the process's own has the tightest limit, and all figures are its own."""
    top = tmp_path / "top"
    put(top, memory__stat="inactive_file 5\n")  # the root group has no figures of its own
    put(top / "pod", memory__current="900\n", memory__max="1000\n", memory__events="oom_kill 3\n",
        memory__stat="anon 1\ninactive_file 250\nactive_file 90\n")  # fmt: skip
    put(top / "pod/job", memory__current="700\n", memory__max="max\n")
    put(top / "pod/job/part", memory__current="600\n", memory__max="5000\n")
    found = find("0::/pod/job/part\n", version_2(top))
    assert found is not None
    assert found.current == str(top / "pod/memory.current")
    figures = (found.current_bytes(), found.limit_bytes(), found.working_bytes(), found.oom_kills())
    assert figures == (900, 1000, 650, 3)
    assert parse_file_cache(read_text(found.stat)) == 340


def test_version_2_without_any_limit(tmp_path: Path, find: Find) -> None:
    """The process's own group, with NULL for a limit and for what this kernel does not tell."""
    top = tmp_path / "top"
    put(top / "job", memory__current="700\n", memory__max="max\n", memory__events="low 0\n")
    found = find("0::/job\n", version_2(top))
    assert found is not None
    assert found.current == str(top / "job/memory.current")
    assert (found.limit_bytes(), found.oom_kills()) == (None, None)
    assert found.working_bytes() == 700
    assert parse_file_cache(read_text(found.stat)) is None


def test_version_1_in_a_container(tmp_path: Path, find: Find) -> None:
    """Its group is mounted alone, under a path that the container knows from outside only."""
    top = tmp_path / "top"
    put(top, memory__usage_in_bytes="900\n", memory__limit_in_bytes="1000\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        memory__stat="inactive_file 1\nactive_file 2\ntotal_inactive_file 100\n"
        "total_active_file 50\n")  # fmt: skip
    found = find("4:memory:/docker/abc\n0::/\n", version_1(top, root="/docker/abc"))
    assert found is not None
    figures = (found.current_bytes(), found.limit_bytes(), found.working_bytes(), found.oom_kills())
    assert figures == (900, 1000, 800, 2)
    assert parse_file_cache(read_text(found.stat)) == 150


def test_version_1_beside_an_empty_version_2(tmp_path: Path, find: Find) -> None:
    """Where both are mounted, the one that has the memory counts; its huge number is no limit."""
    top = tmp_path / "top"
    put(
        top / "one/job",
        memory__usage_in_bytes="5\n",
        memory__limit_in_bytes="9223372036854771712\n",
    )
    (top / "two").mkdir()
    mounts = version_1(top / "one") + version_2(top / "two")
    found = find("0::/\n4:cpu:/job\n3:hugetlb,memory:/job\n", mounts)
    assert found is not None
    assert (found.current_bytes(), found.limit_bytes()) == (5, None)


def test_no_memory_cgroup_is_none(find: Find) -> None:
    """Neither a group without a mount nor no group at all is an error."""
    assert find("4:memory:/job\n0::/x\n", "") is None
    assert find("", "") is None


def test_a_warning_comes_at_nine_tenths() -> None:
    """Below there is none; above it names both sizes and what the kernel will do."""
    assert sentence_of(9 * GIB - 1, 10 * GIB) is None
    sentence = str(sentence_of(9 * GIB, 10 * GIB))
    assert "9.00 GiB of 10.0 GiB (90 %)" in sentence
    assert "kills" in sentence


def test_texts_of_the_kernel() -> None:
    """Numbers, pressure and sizes as they are written; what is not there is NULL."""
    assert parse_bytes("12\n") == 12
    assert parse_bytes("max\n") is None
    assert parse_bytes("") is None
    pressure = "some avg10=1.50 avg60=0.1 avg300=0.0 total=7\nfull avg10=0.00 avg60=0.0 total=0\n"
    assert parse_pressure(pressure, "some") == 0.015
    assert parse_pressure(pressure, "full") == 0.0
    assert parse_pressure("", "some") is None
    assert sizes_in("55-7f ---p 00000000 00:00 0 [rollup]\nPss:  12 kB\nSwapPss: 0 kB\n") == {
        "Pss": 12 << 10,
        "SwapPss": 0,
    }
