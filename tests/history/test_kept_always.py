"""What a node server keeps of its machine: each process, to its last row, without being asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from probing.errors import ProbingError
from probing.rundir.folders import ProcessFolder
from tests.harness.ring_writer import trace_values, trace_writer
from tests.harness.targets import Target, wait_until
from tests.history.conftest import ended_in

pytestmark = pytest.mark.anypython

Made = Callable[..., ProcessFolder]
Ask = Callable[[str], list[dict[str, Any]]]


@contextmanager
def serving(home: Path, history: Path) -> Iterator[Target]:
    """A node server that keeps what is on record, every second."""
    argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"]
    settings = {"PROBING_HISTORY": str(history), "PROBING_HISTORY_EVERY_S": "1"}
    node = Target(argv, home, home.parent, **settings)
    try:
        node.wait_for_output("listening on")
        yield node
    finally:
        node.reap()


def kept(ask: Ask) -> int:
    """How many calls of modules are in the history; none while there is none."""
    try:
        return int(ask("SELECT count(*) AS n FROM torch_trace")[0]["n"])
    except ProbingError:
        return 0


def test_a_node_server_keeps_all_that_is_on_record(
    ended: Made, root: Path, ask: Ask, tmp_path: Path
) -> None:
    """Also of a process that had ended before, and each row once, however often it looks."""
    folder, writer = ended(), trace_writer(capacity=64, rows=40)
    writer.save(folder.ring("torch_trace"))
    apart = tmp_path / "apart"
    apart.mkdir()
    with serving(folder.path.parent, root) as node:
        wait_until(lambda: kept(ask) == 40, "all rows of the process that had ended")
        later, more = ended_in(apart, 78), trace_writer(capacity=64, rows=7)
        more.write(**trace_values(8))
        more.save(later.ring("torch_trace"))
        later.path.rename(folder.path.parent / later.path.name)  # whole, to whoever looks just then
        wait_until(lambda: kept(ask) == 48, "those of one that came later")
        assert len(ask("FROM processes")) == 2
        assert node.output.count("exporting to") == 1


def test_a_place_that_takes_nothing_is_told_once(ended: Made, tmp_path: Path) -> None:
    """The node server answers all the same."""
    folder, writer = ended(), trace_writer(capacity=64, rows=40)
    writer.save(folder.ring("torch_trace"))
    place = tmp_path / "file"
    place.write_text("")
    with serving(folder.path.parent, place) as node:
        node.wait_for_output("error: ")
        assert str(place) in node.output
        assert node.process.poll() is None
        done = node.run("list", "--dead")
        assert done.returncode == 0, done.stderr
        assert node.output.count("error: ") == 1


def test_a_node_server_puts_small_files_together(ended: Made, root: Path, ask: Ask) -> None:
    """Once there are many: of rows, and of what ended processes were, and all of them stay."""
    for number in range(20):
        folder, writer = ended(start_time=100 + number), trace_writer(capacity=64, rows=5)
        writer.save(folder.ring("torch_trace"))
    with serving(folder.path.parent, root) as node:
        for table in ("torch_trace", "processes"):
            merged = f"*/*/table={table}/*/merged-*.parquet"
            wait_until(lambda merged=merged: list(root.glob(merged)), f"one file of {table}")  # type: ignore[misc]
        wait_until(lambda: kept(ask) == 100, "all rows")
        assert "error" not in node.output
    assert len(ask("FROM processes")) == 20
