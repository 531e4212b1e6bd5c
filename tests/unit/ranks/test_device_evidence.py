"""What is made of the record of devices: in verdicts, and in the lines that commands share."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from probing.cli.render.ranks.hang import render_verdict
from probing.diagnosis.device_use import _STAGES, sample_words, use_of, xid_lines
from probing.diagnosis.hang import RankEvidence, judge
from probing.diagnosis.hang.seen.flights import is_blind
from probing.diagnosis.hang.seen.record import record_of
from probing.errors import SqlError
from tests.unit.ranks.hang_samples import LATE, WAITING, call, evidence, waiting_but

pytestmark = pytest.mark.anypython

DEVICE = "device cuda:0: 100 % busy, 120 of 700 W"
LOST = "the driver told of error XID 79 (the device has fallen off the bus) 12 s ago"
NOTHING: dict[str, Any] = dict.fromkeys(
    ("busy", "power_w", "power_limit_w", "sm_mhz", "throttled", "temperature_c", "ecc_errors",
     "remapped_rows", "processes", "own_bytes", "used_bytes", "pcie_bytes_per_s",
     "nvlink_bytes_per_s")
)  # fmt: skip


def said_of(ranks: list[RankEvidence]) -> str:
    """The verdict, on one line."""
    return " ".join(render_verdict(judge(ranks), width=None).split())


def test_a_device_that_is_named_is_no_sign_of_progress() -> None:
    """The rank that is waited for has its device's line; so have all where nobody is named."""
    late = evidence(2, LATE, device=DEVICE)
    assert f"{DEVICE} (a collective that waits there keeps it busy, too)" in said_of(
        waiting_but({2: late})
    )
    ranks = [dataclasses.replace(e, device=DEVICE) for e in waiting_but({})]
    said = said_of(ranks)
    assert said.count(DEVICE) == 4
    assert "Rank 3: device cuda:0" in said


def test_an_error_of_the_driver_is_told_of_whichever_rank() -> None:
    """Also of one that only waits, and of one that has ended; a device without any has no word."""
    ranks = waiting_but({2: evidence(2, LATE)})
    ranks[0] = dataclasses.replace(ranks[0], device_errors=(LOST,))
    assert f"Of the device of rank 0, {LOST}." in said_of(ranks)
    assert "Of the device" not in said_of(waiting_but({2: evidence(2, LATE)}))


def test_a_single_process_has_its_open_collectives_and_its_device() -> None:
    """The commonest hang on a GPU: the host waits for its device, that for other ranks."""
    opened = call(41, is_open=True)
    one = evidence(0, (*LATE, opened), world_size=None, groups=(), device=DEVICE)
    said = said_of([dataclasses.replace(one, rank=None)])
    assert "all_reduce number 41 of group 0 at train.py:88 has not ended for 15 s" in said
    assert DEVICE in said


@pytest.mark.parametrize(("moved", "is_asked"), [(True, False), (False, True), (None, True)])
def test_torch_is_asked_of_no_rank_that_moves(*, moved: bool | None, is_asked: bool) -> None:
    """It answers with the interpreter lock held, and asks the device."""
    on_device = dataclasses.replace(WAITING, kind="device")
    assert is_blind(evidence(0, LATE, doing=on_device, moved=moved)) is is_asked


def test_an_agent_that_knows_no_devices_tells_the_rest() -> None:
    """One of an older version refuses the whole question; it is asked without them."""

    def query(sql: str) -> Any:
        if "python.devices" in sql:
            raise SqlError("there is no table python.devices")
        return SimpleNamespace(to_pylist=lambda: [{"steps": [{"step": 7}]}])

    notes: list[str] = []
    found = record_of(cast("Any", SimpleNamespace(query=query)), notes)
    assert (found["steps"], found["device"], notes) == ([{"step": 7}], [], [])


def test_without_a_device_there_is_nothing_to_be_told() -> None:
    """No row of any kind is no use of a device."""
    parts = ("sample", "xids", "steps", "stages", "collectives", "replays")
    assert use_of([dict.fromkeys(parts)]) is None
    assert use_of([]) is None


def test_what_was_not_measured_is_left_out_and_what_is_old_says_so() -> None:
    """A slice of MIG tells next to nothing; of a process that has ended the last look is kept."""
    row = {**NOTHING, "device": "cuda:3", "age_s": 0.4}
    assert sample_words(row) == "device cuda:3: tells nothing of itself"
    row |= {"busy": 0.0, "age_s": 300.0, "ecc_errors": 0}
    assert sample_words(row) == "device cuda:3: 0 % busy, 5 min ago"
    told = list(xid_lines([{"xid": 79, "age_s": 12.0}, {"xid": 999, "age_s": 240.0}]))
    assert told == [LOST, "the driver told of error XID 999 4 min ago"]


def test_the_parts_of_a_step_are_of_the_steps_that_were_timed() -> None:
    """A step that is timed takes longer than others: its parts are shares of its own time."""
    import duckdb

    with duckdb.connect() as con:
        con.execute("CREATE SCHEMA python")
        con.execute(
            "CREATE TABLE python.steps AS SELECT range::INT AS step, 0.05 AS duration,"
            " if(step % 100 = 7, 0.2, 0.05) AS device_s, false AS host_bound FROM range(1, 300)"
        )
        con.execute(
            "CREATE TABLE python.device_times AS SELECT step, stage, depth, 0.08 AS device_s FROM"
            " (VALUES (7), (107), (207)) s(step), (VALUES ('forward', 0), ('backward', 0),"
            " ('forward', 1)) m(stage, depth)"
        )
        told = [(stage, round(share, 6)) for stage, share in con.sql(_STAGES).fetchall()]
    assert told == [("forward", 0.4), ("backward", 0.4)]
    steps = {"steps": 9, "step_s": 0.1, "device_s": 0.05, "host_bound": 0, "judged": 0}
    use = use_of([{"steps": [steps], "stages": [{"stage": "forward", "share": 0.4}]}])
    assert use is not None
    assert list(use.lines()) == ["a step takes 50 ms on the device (forward 40.0 %)"]


def test_a_device_without_a_driver_has_its_steps() -> None:
    """As of AMD, of Intel, and without nvidia-ml-py."""
    steps = {"steps": 9, "step_s": 0.1, "device_s": 0.08, "host_bound": 9, "judged": 9}
    use = use_of([{"steps": [steps]}])
    assert use is not None
    assert list(use.lines()) == ["a step takes 80 ms on the device; host-bound: 9 of the last 9"]
    assert use.holders() is None
