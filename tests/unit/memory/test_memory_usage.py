"""What the advice on memory is given of each device."""

from __future__ import annotations

from typing import Any

import pytest

from probing.diagnosis.memory.memory_report import Device, usage_of

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
