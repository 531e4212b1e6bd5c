"""The resident set of a process, told apart by what its pages are."""

from __future__ import annotations

from pathlib import Path

_FIELDS = {"VmRSS:": "all", "RssAnon:": "anon", "RssFile:": "file", "RssShmem:": "shmem"}
_PEAK = "VmHWM:"


def resident_kib(pid: int | str = "self") -> dict[str, int]:
    """KiB by kind, as the kernel counts them: ``all``, ``anon``, ``file``, ``shmem``."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines())
    return {_FIELDS[words[0]]: int(words[1]) for words in lines if words and words[0] in _FIELDS}


def peak_kib() -> int:
    """The most KiB that this process has had resident."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(_PEAK))
