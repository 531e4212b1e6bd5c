"""What is on record of collectives that return before the device has done them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import probing
from tests.harness.jobs import start_job
from tests.harness.targets import Target, wait_until

pytestmark = pytest.mark.torch

ROWS = """
    SELECT op, bytes, duration IS NULL AS is_open, is_async FROM python.collectives
    ORDER BY start_ns
"""


def row(op: str, size: int, *, is_open: bool) -> dict[str, Any]:
    """What is expected of one."""
    return {"op": op, "bytes": size, "is_open": is_open, "is_async": False}


def test_a_collective_is_open_until_the_device_is_past_it(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that were gathered, which end as one; what the device hangs in stays open."""
    target = program("like_nccl", PROBING_OVERHEAD="100000")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_output("queued")
    process = probing.connect(target.pid)
    begun = [("all_reduce", 16), ("broadcast", 16), ("broadcast", 8)]
    assert process.query(ROWS).to_pylist() == [row(*one, is_open=True) for one in begun]
    (target.cwd / "go").touch()
    target.wait_for_output("ready")
    # The program does nothing more: what its device has passed is seen by the agent's own thread.

    def is_all_but_the_last_over() -> bool:
        return [one["is_open"] for one in process.query(ROWS).to_pylist()][-3:] == [
            False,
            False,
            True,
        ]

    wait_until(is_all_but_the_last_over, "all but the last to end")
    told = process.query(ROWS).to_pylist()
    assert told[:3] == [row(*one, is_open=False) for one in begun]
    later = [(one["op"], one["is_open"]) for one in told[3:]]
    assert later == [("barrier", False), *[("all_reduce", False)] * 8, ("reduce", True)]
    took = process.query(
        "SELECT device_s FROM python.collectives WHERE step > 0 AND op <> 'reduce'"
    )
    assert [one["device_s"] for one in took.to_pylist()] == [2.0] * 6

    def is_told() -> bool:
        shown = " ".join(target.run(str(target.pid), "hang").stdout.split())
        return "reduce number 13 of group 0 at like_nccl.py:" in shown

    wait_until(is_told, "the verdict, once it has made no progress for a while")
    (target.cwd / "abort").touch()
    target.wait_for_output("aborted")
    (last,) = process.query(
        "SELECT op, failed, error FROM python.collectives ORDER BY start_ns DESC LIMIT 1"
    ).to_pylist()
    aborted = "its process group was aborted before it had ended"
    assert last == {"op": "reduce", "failed": True, "error": aborted}
    faults = process.query("SELECT source, note FROM probing.sources WHERE faults > 0")
    assert faults.to_pylist() == []


def test_one_that_has_failed_and_that_nobody_waits_for_is_failed(tmp_path: Path) -> None:
    """Its work is over as one that has been done is; its future says what has become of it."""
    job = start_job("left_alone", ranks=2, cwd=tmp_path)
    try:
        job.wait_for_rank(0, "done")
        told = job.ask(
            0,
            "SELECT op, failed, error FROM python.collectives WHERE process_group = '0'"
            " AND is_async ORDER BY start_ns",
        )
        assert [(row["op"], row["failed"]) for row in told] == [("all_reduce", True)]
        assert told[0]["error"].startswith("RuntimeError: ")
    finally:
        job.reap()
