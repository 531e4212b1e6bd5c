"""Where everything lies in a history's folder.

    FOLDER/project=P/job=J/table=T/day=2026-11-24/PROCESS.000001.parquet
    FOLDER/project=P/job=J/table=T/day=2026-11-24/PROCESS.parquet     what a process is now
    FOLDER/project=P/job=J/table=T/day=2026-11-24/merged-DIGEST.parquet     many of either
    FOLDER/_probing/state/PROCESS.json      what is exported of a process; locked by who exports it
    FOLDER/_probing/unfinished/PROCESS/     files that are being written
    FOLDER/_probing/jobs/JOB.json           the runs of a job, see `runs`
    FOLDER/_probing/compaction/             what of that is done, see `swap`; locked by who does it
    FOLDER/_probing/iceberg/                what Iceberg knows of the files, see `iceberg`

Rules of this file: names only. Engines that read hive folders pass over what begins with `_`. A
value is percent-encoded, as hive has it; one that is NULL has hive's name for that.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from ..messages.frozen import dataclass

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
_SAFE = "@+,"
OWN = "_probing"
_KEY = re.compile(r"([a-z]+)=(.*)", re.DOTALL)
_LONGEST, _DIGITS = 200, 16
_CUT = re.compile(rf".{{0,{_LONGEST}}}-[0-9a-f]{{{_DIGITS}}}")
"""A name that was cut is cut no further, so that it is found again by what it stands for."""
_LEVELS = 4
"""Folders of a file within a history."""
_PART = re.compile(r"(.+)\.(\d{6,})\.parquet", re.DOTALL)
_MERGED = re.compile(r"merged-[0-9a-f]{16}\.parquet")
_SPECIAL = re.compile(r"([\\*?\[\]{}])")
COMPACTOR = "compaction"
"""Beside the names of processes, which have dashes, that of who puts small files together."""


def quoted(value: str | None) -> str:
    """A value as the name of a file or folder, or a part of one."""
    if value is None:
        return NULL_VALUE
    text = quote(value, safe=_SAFE, errors="surrogateescape")
    if text in {"", ".", ".."}:  # a folder's name that means something else
        text = text.replace(".", "%2E") or "%20"
    if len(text) > _LONGEST and not _CUT.fullmatch(text):  # a file system takes 255 bytes
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
        text = f"{_beginning(text)}-{digest}"
    return text


def _beginning(text: str) -> str:
    """What a long name is cut to: not within a character, for engines refuse a half of one."""
    cut = text[:_LONGEST].rpartition("%")[0] or text[:_LONGEST]
    while shown(cut) != unquoted(cut) and "%" in cut:
        cut = cut.rpartition("%")[0]
    return cut


def unquoted(text: str) -> str | None:
    """The value that such a name stands for."""
    return None if text == NULL_VALUE else unquote(text, errors="surrogateescape")


def as_stored(value: str) -> str:
    """What is left of a value once it was the name of a file or folder."""
    return unquoted(quoted(value)) or ""


def shown(text: str) -> str | None:
    """The same as rows have it: with a mark in the place of what is no character."""
    return None if text == NULL_VALUE else unquote(text)


def values_in(file: str) -> dict[str, str]:
    """What the folders of a file say, as they are called; by the names of their columns."""
    found = map(_KEY.fullmatch, file.split("/")[-_LEVELS - 1 : -1])
    return {one[1]: one[2] for one in found if one}


def keys_above(file: str) -> frozenset[str]:
    """The keys of folders KEY=VALUE above a history, of which a file has its name in full."""
    folders = file.split("/")[: -_LEVELS - 1]
    return frozenset(name.partition("=")[0] for name in folders if "=" in name)


def job_folder(project: str, job: str | None) -> str:
    """Where all tables of a job are."""
    return f"project={quoted(project)}/job={quoted(job)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The folder of a table's rows of one job, with a folder for each day in it."""

    root: Path
    project: str
    job: str | None
    table: str

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.root / job_folder(self.project, self.job) / f"table={quoted(self.table)}"

    def day(self, day: str) -> Path:
        """The folder of a day, such as 2026-11-24."""
        return self.path / f"day={day}"

    def days(self) -> list[Path]:
        """The folders of days that are there."""
        return sorted(self.path.glob("day=*"))


def day_pattern(table: str, *, project: str = "*", job: str = "*", day: str = "*") -> str:
    """Where the folders of days of a table are: of all projects, jobs and days, or of one each."""
    return f"project={project}/job={job}/table={quoted(table)}/day={day}"


def part_name(process: str, number: int) -> str:
    """The name of a process's file of rows, in its table counted from 1."""
    return f"{process}.{number:06d}.parquet"


def look_name(process: str) -> str:
    """The name of the one file of a table that holds what a process is now."""
    return f"{process}.parquet"


def part_of(name: str) -> tuple[str, int] | None:
    """The process and the number of a file of rows; None of any other name."""
    found = _PART.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


def look_of(name: str) -> str | None:
    """The process of a file of what it is now; None of any other name."""
    if part_of(name) or is_merged(name) or not name.endswith(".parquet"):
        return None
    return name.removesuffix(".parquet")


def merged_name() -> str:
    """A name for a file that is made of many; no other has it."""
    return f"merged-{secrets.token_hex(_DIGITS // 2)}.parquet"


def is_merged(name: str) -> bool:
    """Whether that is the name of a file that was made of many."""
    return _MERGED.fullmatch(name) is not None


def state_file(root: Path, process: str) -> Path:
    """What is exported of a process."""
    return root / OWN / "state" / f"{process}.json"


def unfinished(root: Path, process: str) -> Path:
    """Where files of a process are while they are written."""
    return root / OWN / "unfinished" / process


def shipped_file(root: Path, process: str) -> Path:
    """What of a process is in a store already, in the spool of that store."""
    return root / OWN / "shipped" / f"{process}.json"


def exporters_of(process: str) -> str:
    """Where the one spool has its mark that exports a process to a store."""
    return f"{OWN}/exporters/{process}"


def compactor_file(root: Path) -> Path:
    """What is locked by who puts small files together."""
    return root / OWN / COMPACTOR / "compactor.json"


def iceberg_folder(root: Path) -> Path:
    """Where the Iceberg tables have their catalog, and what they say of files."""
    return root / OWN / "iceberg"


def iceberg_file(root: Path) -> Path:
    """What is locked by who commits to the Iceberg tables."""
    return iceberg_folder(root) / "committer.json"


def swap_file(root: Path) -> Path:
    """Which files are being replaced, and by which."""
    return root / OWN / COMPACTOR / "swap.json"


def readers_lock(root: Path) -> Path:
    """What queries lock together, and who replaces files alone."""
    return root / OWN / COMPACTOR / "readers.lock"


def gate_lock(root: Path) -> Path:
    """What is locked before `readers_lock`, and left again: who replaces files shuts it."""
    return root / OWN / COMPACTOR / "gate.lock"


def states_in(root: Path) -> Iterator[Path]:
    """What is exported of each process."""
    return (root / OWN / "state").glob("*.json")


def job_file(root: Path, project: str, job: str) -> Path:
    """The runs of a job."""
    return root / OWN / "jobs" / f"{quoted(f'{project} {job}')}.json"


def tables_of(root: Path, within: str = "project=*/job=*") -> Iterator[tuple[str, Path]]:
    """The folder of each table of each job, with the name of the table.

    Args:
        within: Of which jobs, see `job_folder`.
    """
    for path in sorted(root.glob(f"{within}/table=*")):
        found = _KEY.fullmatch(path.name)
        name = unquoted(found[2]) if found else None
        if name:
            yield name, path


def as_pattern(path: str) -> str:
    """A path for engines that take each for a pattern."""
    return _SPECIAL.sub(r"\\\1", path)


def files_in(folder: Path) -> list[Path]:
    """The Parquet files of a table of a job."""
    return sorted(folder.glob("day=*/*.parquet"))
