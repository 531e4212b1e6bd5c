"""What came over a device is named where steps take longer, and which of its memory grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from probing.diagnosis.doctor.rules import RULES

from .made import facts, signs, steps
from .records import after, trace

if TYPE_CHECKING:
    from probing.diagnosis.doctor.facts import Facts

pytestmark = pytest.mark.anypython

SLOWER = {
    "backward_s": after(120, 0.04, 0.12),
    "duration": after(120, 0.1, 0.18),
    "cpu_s": after(120, 0.1, 0.18),
}


def device_rows(column: str, old: Any, new: Any, **columns: Any) -> list[dict[str, Any]]:
    """A row for each step, of which one column has another value since step 120."""
    base = {"device": "cuda:0", "busy": 1.0, "processes": 1, "sm_mhz": 1980, "throttled": None}
    return [
        {**base, **columns, column: new if step >= 120 else old,
         "start_ns": 1_000_000_000 * (10 + step)}
        for step in range(200)
    ]  # fmt: skip


def slower(devices: list[dict[str, Any]], **columns: Any) -> Facts:
    """A training whose steps take longer since step 120, as its module 0 seems to do."""
    of_modules = trace(*(
        {"step": step, "module": name, "class": kind, "depth": depth,
         "duration": 0.05 if step >= 120 else 0.01}
        for step in range(200)
        for depth, (name, kind) in enumerate((("", "Net"), ("mid", "Mid")))
    ))  # fmt: skip
    return facts(
        {"steps": steps(200, **SLOWER | columns), "devices": devices, "torch_trace": of_modules}
    )


def test_others_on_the_device_are_what_steps_wait_for() -> None:
    """They are named with the device, and no module is: all wait for the device."""
    (sign,) = signs("slower-since", slower(device_rows("processes", 1, 4)))
    assert sign.summary == (
        "Steps take 1.8 times as long since step 120 (100 ms before, 180 ms since); since then 3"
        " other processes use cuda:0, before none"
    )
    assert sign.certainty == "likely"
    assert "cuda:0 since: 100 % busy, 4 processes on it" in sign.evidence
    assert sign.fix.startswith("Give the job the device alone")
    assert "python.devices" in sign.next
    assert not any("mid" in line for line in sign.evidence)
    (sign,) = signs("slower-since", slower(device_rows("processes", 2, 3)))
    assert sign.summary.endswith("; since then 2 other processes use cuda:0, before 1")
    (sign,) = signs("slower-since", slower(device_rows("processes", 2, 2)))
    assert sign.summary.endswith("; 1 other process uses cuda:0, too")


def test_a_lower_clock_is_named_where_it_explains_the_steps() -> None:
    """With what holds it down; one that fell by little is no cause."""
    rows = device_rows("sm_mhz", 1980, 1100)
    for row in rows[130:]:
        row["throttled"] = "power cap;hardware thermal"
    (sign,) = signs("slower-since", slower(rows))
    assert sign.summary.endswith(
        "; the clock of cuda:0 is lower: 1,980 MHz before, 1,100 MHz since, held down by power cap,"
        " hardware thermal 88 % of the time"
    )
    assert "nvidia-smi" in sign.fix
    (sign,) = signs("slower-since", slower(device_rows("sm_mhz", 1980, 1800)))
    assert sign.summary.endswith("most of it in mid (Mid)")


@pytest.mark.parametrize(
    ("devices", "columns"),
    [
        ([], {}),
        (device_rows("processes", None, None, busy=None, sm_mhz=None), {}),
        (device_rows("processes", 1, 4, busy=0.2), {}),
        (device_rows("processes", 4, 1), {}),
        (device_rows("processes", 1, 4), {"backward_s": 0.04,
                                          "data_wait_s": after(120, 0.0, 0.08)}),
    ],
)  # fmt: skip
def test_what_the_device_does_not_explain(
    devices: list[dict[str, Any]], columns: dict[str, Any]
) -> None:
    """Nothing is said of it without a record, where it idles, is alone, or data is waited for."""
    (sign,) = signs("slower-since", slower(devices, **columns))
    assert "cuda:0" not in " ".join((sign.summary, *sign.evidence))
    assert sign.next == ""


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("allocated_bytes", "what torch's allocator has given out on cuda:0"),
        ("reserved_bytes", "what torch's allocator holds and has not given out on cuda:0"),
        ("device_used_bytes", "what is in use outside of torch's allocator on cuda:0"),
        ("resident_bytes", "the resident set"),
    ],
)
def test_where_memory_grows_is_said_in_words(column: str, words: str) -> None:
    """Of a device, which of its figures grows, and on which one; else the process's."""
    held = {"allocated_bytes": 1 << 30, "reserved_bytes": 2 << 30, "device_used_bytes": 9 << 30}
    figures = {column: 0} if column == "resident_bytes" else held
    rows = [
        {"step": n, "phase": "after_step", "device": "cpu" if len(figures) < 2 else "cuda:0",
         **figures, column: figures[column] + (n << 20)}
        for n in range(1, 400)
    ]  # fmt: skip
    rule = next(rule for rule in RULES if rule.name == "memory-grows")
    assert rule.on_record is not None
    (sign,) = rule.on_record(facts({"memory": rows}))
    assert sign.summary == f"Memory grows: 1.00 MiB a step in {words}"
    assert sign.evidence[0] == f"{words} has grown by 398.0 MiB since step 1"
