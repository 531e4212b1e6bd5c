"""What the advice on memory is given of each device, and what `memory` says of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from probing.cli.render.memory.report import memory_head
from probing.diagnosis.device_use import use_of
from probing.diagnosis.memory.memory_report import Device, usage_of
from probing.tables import PINNED
from tests.unit.cli.memory_samples import NOTHING_SEEN

pytestmark = pytest.mark.anypython

ROW: dict[str, Any] = {
    "device": "cuda:0",
    "device_total_bytes": 80 << 30,
    "peak_bytes": 70 << 30,
    "cgroup_limit_bytes": None,
    "node_total_bytes": 512 << 30,
}


@pytest.mark.parametrize(
    ("device", "total", "peak"),
    [("cuda:0", 80 << 30, 70 << 30), ("cuda:1", None, None), ("cpu", 512 << 30, None)],
)
def test_a_device_is_judged_by_its_own_rows(
    device: str, total: int | None, peak: int | None
) -> None:
    """One without a row has no total and no peak; what the host has stands in every row."""
    found = usage_of(Device(name=device, categories={}), {"cuda:0": ROW}, ())
    assert (found.total, found.peak) == (total, peak)


_GIB, _MIB = 2**30, 2**20
_ROW = {"device": "cuda:0", "step": 7, "phase": "after_step", "allocated_bytes": _GIB,
        "peak_bytes": 3 * _GIB, "reserved_bytes": 4 * _GIB, "device_used_bytes": 11 * _GIB,
        "device_total_bytes": 80 * _GIB, "resident_bytes": None, "cgroup_bytes": None,
        "node_used_bytes": None}  # fmt: skip
_SAMPLE = {"device": "cuda:0", "processes": 2, "own_bytes": 5 * _GIB, "used_bytes": 11 * _GIB,
           "ecc_errors": None, "remapped_rows": None}  # fmt: skip
_ON_IT = "2 processes on it"
_ALONE = {"processes": 1, "own_bytes": None}


@pytest.mark.parametrize(
    ("sample", "beyond", "holders"),
    [
        ({}, "1.00 GiB of this process's outside of torch's allocator",
         f"{_ON_IT}, this one with 5.00 GiB, the others and the driver with 6.00 GiB"),
        ({"processes": 1}, "1.00 GiB of this process's outside of torch's allocator",
         "1 process on it, this one with 5.00 GiB"),
        ({"own_bytes": None}, "7.00 GiB of other processes or untracked", _ON_IT),
        (_ALONE, "7.00 GiB untracked (6.00 GiB as it was first seen)", "1 process on it"),
        ({"own_bytes": 3 * _GIB}, "11.0 GiB of 80.0 GiB (14 %) in use on the device",
         f"{_ON_IT}, this one with 3.00 GiB, the others and the driver with 8.00 GiB"),
    ],
)  # fmt: skip
def test_what_others_have_of_a_device_is_not_this_process_s(
    sample: dict[str, Any], beyond: str, holders: str
) -> None:
    """By the driver's word; without it the two are not told apart, unless there is nobody else."""
    use = use_of([{"sample": [{**_SAMPLE, **sample}]}])
    first = {**_ROW, "device_used_bytes": 6 * _GIB, "reserved_bytes": 0}
    report = dataclasses.replace(
        NOTHING_SEEN, newest={"cuda:0": _ROW}, baseline={"cuda:0": first}, device=use
    )
    line, below = memory_head(report)
    assert line.endswith(f", {beyond}")
    assert below.strip() == holders


@pytest.mark.parametrize(("used", "words"), [(None, ""), (2 * _MIB, ", 2.00 MiB of it in use")])
def test_pinned_memory_is_in_use_as_far_as_torch_counts_it(used: int | None, words: str) -> None:
    """Where it does not, no figure is made of what it says."""
    segment = {"device": "cpu", "pool": PINNED, "reserved_bytes": 3 * _MIB, "allocated_bytes": used}
    (line,) = memory_head(dataclasses.replace(NOTHING_SEEN, segments=(segment,)))
    assert line == f"pinned   3.00 MiB of the host's memory{words}"
