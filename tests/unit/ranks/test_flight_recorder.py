"""What is made of dumps of torch's flight recorder, from samples of them."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.sources.collectives.flight_recorder import (
    flight_recorder_rows,
    rows_of_dump,
)

pytestmark = pytest.mark.anypython

GLOO: dict[str, Any] = {
    "collective_seq_id": 7,
    "input_dtypes": ["Float", "Float"],
    "input_sizes": [[4, 2], [3]],
    "is_p2p": False,
    "p2p_seq_id": 0,
    "pg_id": 0,
    "process_group": ["0", "default_pg"],
    "profiling_name": "gloo:all_reduce",
    "record_id": 6,
    "retired": False,
    "state": "scheduled",
    "time_created_ns": 1_795_300_378_270_257_266,
    "time_discovered_completed_ns": 0,
    "time_discovered_started_ns": 0,
    "timeout_ms": 1_800_000,
}


def row_of(last_completed: str = "-1", **changes: Any) -> dict[str, Any]:
    """The row of a dump with one entry."""
    dump = {
        "pg_config": {"": {"name": "", "ranks": "[]"}},
        "pg_status": {"0": {"last_completed_collective": last_completed}},
        "entries": [GLOO | changes],
    }
    (row,) = rows_of_dump(dump)
    return row


def test_an_entry_is_told() -> None:
    """Group, operation, sizes and times stand in columns; what is not known is NULL."""
    row = row_of()
    assert row == {
        "record_id": 6,
        "process_group": "0",
        "description": "default_pg",
        "backend_seq": 7,
        "backend": "gloo",
        "op": "all_reduce",
        "shapes": "[4,2];[3]",
        "dtypes": "float32",
        "is_p2p": False,
        "state": "scheduled",
        "is_over": False,
        "timeout_s": 1800.0,
        "created_ns": 1_795_300_378_270_257_266,
        "started_ns": None,
        "completed_ns": None,
        "device_s": None,
    }


@pytest.mark.parametrize(
    ("last", "changes", "is_over"),
    [
        ("6", {}, False),
        ("7", {}, True),
        ("-1", {"retired": True}, True),
        ("-1", {"state": "completed"}, True),
        ("9", {"is_p2p": True}, False),
    ],
)
def test_the_end_is_not_left_to_the_state(
    last: str, changes: dict[str, Any], *, is_over: bool
) -> None:
    """Gloo's state never moves, so what is retired or counted as completed is over."""
    assert row_of(last, **changes)["is_over"] is is_over


def test_fields_may_be_missing() -> None:
    """Dumps of other versions have fewer fields; a recorder that is off has no entries."""
    (row,) = rows_of_dump({"entries": [{"profiling_name": "nccl:broadcast"}]})
    assert (row["backend"], row["op"], row["process_group"]) == ("nccl", "broadcast", None)
    assert rows_of_dump({}) == rows_of_dump({"entries": []}) == []


def dumping(*names: str) -> tuple[SimpleNamespace, list[str]]:
    """A stand-in for torch's module with these dumps, and which of them have been called."""
    called: list[str] = []

    def dump_of(name: str) -> Any:
        def dump(*, includeCollectives: bool, onlyActive: bool) -> bytes:  # noqa: N803
            assert (includeCollectives, onlyActive) == (True, False)
            called.append(name)
            entry = GLOO | {"profiling_name": f"{name}:all_reduce"}
            return json.dumps({"entries": [entry]}).encode()

        return dump

    return SimpleNamespace(**{f"_dump_{name}_trace_json": dump_of(name) for name in names}), called


def put_in_place(patch: pytest.MonkeyPatch, c10d: Any, groups: dict[object, object]) -> None:
    """Have these be what torch has imported."""
    world: Any = SimpleNamespace(_world=SimpleNamespace(pg_map=groups))
    patch.setitem(sys.modules, "torch.distributed.distributed_c10d", world)
    patch.setitem(sys.modules, "torch._C._distributed_c10d", c10d)


def test_nothing_is_asked_without_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a process group has no rows, and its torch is not called."""
    c10d, called = dumping("nccl", "fr")
    put_in_place(monkeypatch, c10d, {})
    answer = flight_recorder_rows()
    assert (answer.rows, called) == ((), [])
    assert "no process group" in (answer.note or "")


@pytest.mark.parametrize("names", [("nccl", "fr"), ("fr",)])
def test_both_recorders_are_read(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's collectives lie in a recorder of their own where torch is built with it."""
    c10d, called = dumping(*names)
    put_in_place(monkeypatch, c10d, {object(): ("gloo", None)})
    answer = flight_recorder_rows()
    at = answer.columns.index("backend")
    assert tuple(row[at] for row in answer.rows) == names == tuple(called)
    assert answer.note is None
