"""What modules take on a device, told by one that is made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from tests.harness.targets import Target

pytestmark = pytest.mark.torch


def test_calls_lie_between_the_marks_of_their_step(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer lies between two marks next to each other, a root around those of its layers.

    The made-up device's clock goes on by a second at each mark. Every step is timed, since the
    budget allows it; rows come with a later step, so the last ones are still missing.
    """
    target = program("timed_device", PROBING="0")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    rows = process.query("FROM python.device_times ORDER BY seq").to_pylist()
    assert process.status().problems == ()
    forward = [(row["step"], row["module"], row["depth"], row["device_s"]) for row in rows
               if row["stage"] == "forward"]  # fmt: skip
    steps = sorted({row["step"] for row in rows})
    assert steps[0] == 0
    assert 5 < len(steps) < 12
    for step in steps:
        assert [call[1:] for call in forward if call[0] == step] == [
            ("0", 1, 1.0),
            ("1", 1, 1.0),
            ("Sequential", 0, 5.0),
        ]
    backward = {row["module"] for row in rows if row["stage"] == "backward"}
    assert backward == {"0", "1", "Sequential"}
    assert all(row["device_s"] >= 1.0 for row in rows)
    (report,) = process.query(
        "SELECT \"table\", state, note FROM probing.sources WHERE source = 'device times'"
    ).to_pylist()
    assert report == {"table": "python.device_times", "state": "on", "note": None}
