"""Ranks without torch for the tests: real processes, and one database over all they hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import probing
from probing.cluster.job.members import Member, find_members
from probing.tables import STEPS, TORCH_TRACE
from tests.harness.targets import Target, start_program

TABLES = (TORCH_TRACE, STEPS)


class Ranks:
    """Some ranks that run.

    Attributes:
        targets: By rank.
    """

    def __init__(self, home: Path, targets: Sequence[Target]) -> None:
        self.home = home
        self.targets = list(targets)

    def members(self) -> tuple[Member, ...]:
        """Them, as the discovery finds them."""
        return find_members(["all"]).members

    def concatenated(self) -> duckdb.DuckDBPyConnection:
        """One database over all their rows, as each of them tells them for itself."""
        database = duckdb.connect()
        database.execute("CREATE SCHEMA python")
        for table in TABLES:
            parts = []
            for member in self.members():
                rows = probing.connect(member.endpoint).query(f"FROM {table.full_name}").to_arrow()
                kinds = {"rank": pa.int64(), "host": pa.string(), "pid": pa.int64()}
                for place, (name, kind) in enumerate({**kinds, "job": pa.string()}.items()):
                    value = pa.scalar(getattr(member, name), kind)
                    rows = rows.add_column(place, name, pa.repeat(value, rows.num_rows))
                parts.append(rows)
            database.register("rows", pa.concat_tables(parts, promote_options="default"))
            database.execute(f"CREATE TABLE {table.full_name} AS FROM rows")
            database.unregister("rows")
        return database


@contextmanager
def running_ranks(
    folder: Path, count: int, *, rows: Sequence[int] | int = 400, then: Sequence[str] = ()
) -> Iterator[Ranks]:
    """Start ranks and wait until all of their rows are written.

    Args:
        rows: How many rows each writes, or all of them.
        then: What each does afterwards, see ``programs/rank.py``.
    """
    home, targets = folder / "home", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROBING_HOME", str(home))
        try:
            for rank in range(count):
                cwd = folder / f"rank{rank}"
                cwd.mkdir()
                size = rows if isinstance(rows, int) else rows[rank]
                how = then[rank] if rank < len(then) else "wait"
                env = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
                env |= {"PROBING": "all", "TORCHELASTIC_RUN_ID": "ranks"}
                targets.append(start_program("rank", str(size), how, home=home, cwd=cwd, **env))
            for target in targets:
                target.wait_for_output("ready")
                target.wait_for_agent()
            yield Ranks(home, targets)
        finally:
            for target in targets:
                target.reap()


def assert_same(given: pa.Table, expected: pa.Table, *, in_order: bool, why: str) -> None:
    """Two answers hold the same rows, floating-point numbers up to rounding."""
    assert given.column_names == expected.column_names, why
    mine, theirs = _rows(given), _rows(expected)
    if not in_order:
        mine, theirs = sorted(mine, key=_key), sorted(theirs, key=_key)
    assert len(mine) == len(theirs), why
    for one, other in zip(mine, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            if isinstance(a, float) and isinstance(b, float) and not math.isnan(a):
                assert a == pytest.approx(b, rel=1e-9, abs=1e-12), why
            else:
                assert (type(a), str(a)) == (type(b), str(b)), why


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _key(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(f"{v:.6e}" if isinstance(v, float) else repr(v) for v in row)
