"""Whole trainings on a made-up CUDA, which refuses what CUDA refuses."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.errors import NotAnswering
from tests.harness.targets import Target, start_program, wait_until

pytestmark = pytest.mark.torch

STEPS = 40 + 12 + 1
REPLAYS = 8


def seen_by(target: Target) -> dict[str, Any]:
    """What the program says that it saw."""
    target.wait_for_output("ready")
    found: dict[str, Any] = json.loads(
        next(line for line in target.output.splitlines() if line.startswith("{"))
    )
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training that captures a step, replays it, and goes on."""
    cwd: Path = tmp_path_factory.mktemp("trained")
    target = start_program(
        "on_fake_cuda", "train", home=cwd / "home", cwd=cwd, PROBING_OVERHEAD="100000"
    )
    seen_by(target)
    yield target
    target.reap()


def rows_of(target: Target, sql: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The answer to a question."""
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process, found = probing.connect(target.pid), list[list[dict[str, Any]]]()

    def ask() -> bool:
        with contextlib.suppress(NotAnswering):  # a machine that has other things to do
            found.append(process.query(sql).to_pylist())
        return bool(found)

    wait_until(ask, "an answer")
    return found[0]


def test_nothing_waits_for_the_device_nor_begins_to_use_another(trained: Target) -> None:
    """A whole training: no synchronisation, and a context on its own device alone."""
    seen = seen_by(trained)
    assert seen["waits"] == []
    assert seen["contexts"] == [1]


def test_nothing_is_asked_while_a_graph_is_captured(trained: Target) -> None:
    """A loss of the step before is still on its way as the capture begins."""
    assert seen_by(trained)["captured"] == []


def test_nothing_is_made_once_the_training_runs(trained: Target) -> None:
    """Events and pinned memory are those of the first steps."""
    steady = seen_by(trained)["steady"]
    assert {"event_create", "host_alloc"}.isdisjoint(steady), steady
    assert steady["event_record"] > 0, "or nothing was seen at all"


def test_losses_come_from_the_device_that_they_lie_on(
    trained: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the current device of the thread is another, which has nothing to do."""
    told = rows_of(
        trained,
        f"SELECT loss, device_s FROM python.steps WHERE step < {STEPS - 1} ORDER BY step",
        monkeypatch,
    )
    losses = seen_by(trained)["losses"]
    assert [row["loss"] for row in told] == pytest.approx(losses[: STEPS - 1], rel=1e-6)
    assert all(row["device_s"] == pytest.approx(4e-3, rel=1e-3) for row in told[2:])


def test_late_numbers_wait_for_the_end_of_the_capture(
    trained: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the last step before it is written once graphs are replayed."""
    (row,) = rows_of(
        trained, f"SELECT loss FROM python.steps WHERE step = {STEPS - 1}", monkeypatch
    )
    assert row["loss"] == pytest.approx(seen_by(trained)["losses"][STEPS - 1], rel=1e-6)


def test_replays_are_rows_and_steps(trained: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph in which the optimizer has stepped twice ends two steps when it is replayed."""
    told = rows_of(
        trained,
        "SELECT module, count(*) AS n, min(step) AS first, max(step) AS last"
        " FROM python.torch_trace WHERE stage = 'replay' GROUP BY ALL",
        monkeypatch,
    )
    first = STEPS + 2
    assert told == [
        {"module": "CUDAGraph 1", "n": REPLAYS, "first": first, "last": first + 2 * (REPLAYS - 1)}
    ]


def test_modules_are_timed_with_their_containers(
    trained: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer takes what it keeps the device busy for, its root the sum, the backward pass too."""
    told = rows_of(
        trained,
        "SELECT stage, module, round(median(device_s) * 1000, 3) AS ms FROM python.device_times"
        " WHERE step BETWEEN 2 AND 10 AND (stage = 'forward' OR module = 'Sequential')"
        " GROUP BY ALL ORDER BY stage, module",
        monkeypatch,
    )
    found = {(row["stage"], row["module"]): row["ms"] for row in told}
    assert found["forward", "0"] == found["forward", "2"] == 1.0
    assert found["forward", "1"] == 0.0
    assert found["forward", "Sequential"] == 2.0
    assert found["backward", "Sequential"] == 0.0, "the fake's work is queued behind it"


def test_all_sources_stay_on(trained: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """None has failed, though the device is asked in every step."""
    told = rows_of(
        trained, "SELECT source, faults FROM probing.sources WHERE faults > 0", monkeypatch
    )
    assert told == []


def test_forked_children_end_well(program: Callable[..., Target]) -> None:
    """Workers of loaders, and children that end as a program does, destroy nothing of CUDA's."""
    target = program("on_fake_cuda", "fork", PROBING_OVERHEAD="100000")
    seen = seen_by(target)
    assert seen == {"children": [0, 0], "contexts": [1]}
    assert "abort" not in target.output.lower()


@pytest.mark.parametrize("name", ["cudaMallocAsync", "pluggable"])
def test_an_allocator_that_tells_little_switches_nothing_off(
    name: str, program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it refuses is noted and asked no more; every source stays on."""
    target = program("on_fake_cuda", "allocator", name)
    assert seen_by(target)["observed"] == 1
    told = rows_of(target, "SELECT source, state, faults, note FROM probing.sources", monkeypatch)
    assert {
        row["state"] for row in told if row["source"] in {"modules", "memory", "out of memory"}
    } == {"on"}
    assert sum(row["faults"] for row in told) == 0
    assert any("does not yet support" in (row["note"] or "") for row in told)


@pytest.mark.parametrize(("kind", "maker"), [("xpu", "Intel"), ("rocm", "AMD")])
def test_devices_of_other_makers_are_recorded_as_far_as_torch_tells(
    kind: str, maker: str, program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses and times on the device; of the device as a whole, a sentence that says why not."""
    target = program("on_fake_cuda", "other", kind, PROBING_OVERHEAD="100000")
    seen = seen_by(target)
    assert (seen["waits"], seen["contexts"]) == ([], [1])
    told = rows_of(
        target, "SELECT loss, device_s FROM python.steps WHERE step BETWEEN 2 AND 9", monkeypatch
    )
    assert [row["loss"] for row in told] == pytest.approx(seen["losses"][2:10], rel=1e-6)
    assert {round(row["device_s"], 6) for row in told} == {4e-3}
    sources = rows_of(target, "SELECT source, faults, note FROM probing.sources", monkeypatch)
    assert sum(row["faults"] for row in sources) == 0
    assert any(f"NVML knows no device of {maker}" in (row["note"] or "") for row in sources)


def test_a_device_that_is_late_tells_losses_and_metrics_in_the_end(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of hundreds of steps; of more the rows that have none are counted as dropped."""
    target = program("on_fake_cuda", "late", PROBING_OVERHEAD="100000")
    seen = seen_by(target)
    assert seen["waits"] == []
    losses, (late, too_late) = seen["losses"], (40 + 400 + 40, 1000)
    told = rows_of(target, "SELECT loss FROM python.steps ORDER BY step", monkeypatch)
    found = [row["loss"] for row in told]
    assert found[:late] == pytest.approx(losses[:late], rel=1e-6)
    right = [loss for loss in found[late : late + too_late] if loss is not None]
    first = len(right)
    assert 600 < first < too_late
    assert right == pytest.approx(losses[late : late + first], rel=1e-6)
    (held,) = (t for t in probing.connect(target.pid).tables().tables if t.name == "steps")
    assert held.dropped == too_late - first
    sql = "SELECT value FROM python.metrics WHERE name = 'loss' ORDER BY seq"
    values = [row["value"] for row in rows_of(target, sql, monkeypatch)]
    doubled = [loss * 2 for loss in losses[40 : 40 + 400] + losses[late : late + too_late]]
    assert values == pytest.approx(doubled, rel=1e-6)
    done = target.run(str(target.pid), "status", "--timeout", "60")
    assert f"{held.dropped:,}" in done.stdout


def test_a_loss_that_is_here_as_the_agent_leaves_is_written(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the last step, too, which no other has followed."""
    target = program("on_fake_cuda", "other", "rocm")
    losses, folder = seen_by(target)["losses"], target.folder
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    probing.connect(target.pid).detach(keep_record=True)
    wait_until(lambda: not folder.socket.exists(), "the end of the agent")
    target.kill()
    sql = "SELECT loss FROM python.steps WHERE duration IS NOT NULL ORDER BY step"
    told = [row["loss"] for row in probing.connect(str(folder.path)).query(sql).to_pylist()]
    assert told == pytest.approx(losses, rel=1e-6)


def test_a_checkpoint_waits_for_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known whether weights are finite, if the device comes to that meanwhile."""
    target = start_program("on_fake_cuda", "save", home=tmp_path / "home", cwd=tmp_path)
    try:
        assert seen_by(target)["waits"] == []
        sql = "SELECT weights_finite AS finite FROM python.checkpoints ORDER BY start_ns"
        told = [row["finite"] for row in rows_of(target, sql, monkeypatch)]
        assert told == [None, True, False]
    finally:
        target.reap()


def test_pinned_memory_is_told_beside_the_segments(
    trained: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What torch has pinned of the host's memory is a row, and a line of `memory`."""
    sql = "SELECT device, pool, reserved_bytes, allocated_bytes, free_bytes, blocks, stream"
    rows = rows_of(trained, f"{sql} FROM python.memory_segments ORDER BY pool", monkeypatch)
    assert [(row["device"], row["pool"]) for row in rows] == [
        ("cpu", "pinned"),
        ("cuda:1", "small"),
    ]
    pinned = rows[0]
    assert (pinned["reserved_bytes"], pinned["allocated_bytes"]) == (32768, 32768)
    assert (pinned["free_bytes"], pinned["blocks"], pinned["stream"]) == (0, 1, None)
    done = trained.run(str(trained.pid), "memory", "--timeout", "60")
    assert "pinned   32.0 KiB of the host's memory, 32.0 KiB of it in use" in done.stdout, done


def test_whoever_asks_learns_whether_the_device_computes(
    trained: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is asked has each device in use compute something."""
    sql = "SELECT device, ok, duration > 0 AS took, error FROM python.device_checks ORDER BY device"
    unused, used = rows_of(trained, sql, monkeypatch)
    assert (unused["device"], unused["ok"]) == ("cuda:0", None)
    assert unused["error"] == "this process does not use it"
    assert used == {"device": "cuda:1", "ok": True, "took": True, "error": None}
