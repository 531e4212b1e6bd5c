"""What commands say of devices, of a real job on made-up ones; the last rank's is the slow one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.harness.jobs import Job, start_job
from tests.harness.targets import wait_until

pytestmark = pytest.mark.torch

RANKS = 2
XID = "the driver told of error XID 79 (the device has fallen off the bus)"
SLOW = "650 of 700 W, 1,200 MHz, 88 C, clocks held down by hardware thermal"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """One that trains until it is halted, by the last test."""
    cwd = tmp_path_factory.mktemp("job")
    job = start_job("on_device", ranks=RANKS, cwd=cwd, PROBING_OVERHEAD="100000")
    looks = "SELECT count(*) AS n FROM python.devices"
    try:
        wait_until(
            lambda: all(job.ask(rank, looks)[0]["n"] > 1 for rank in range(RANKS)),
            "two looks at each device",
        )
        yield job
    finally:
        job.reap()


def said(job: Job, *words: str) -> str:
    """What a command prints."""
    done = job.run(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_status_has_a_line_for_each_kind_of_fact(job: Job) -> None:
    """The driver's figures, phases on the device, collectives, replays, and errors (XID)."""
    shown = said(job, str(job.pid(1)), "status").splitlines()
    at = next(number for number, line in enumerate(shown) if line.startswith("device cuda:1: "))
    device, step, collectives, replays, xid = shown[at : at + 5]
    assert device.startswith(f"device cuda:1: 97 % busy, {SLOW}, PCIe 1.95 GiB/s, NVLink ")
    assert device.endswith("2 uncorrectable memory errors since the driver was loaded")
    assert step.startswith(
        "a step takes 50 ms on the device (forward 14.0 %, backward 0.0 %); host-b"
    )
    assert collectives.startswith("2 collectives of it take 4 ms there, waiting for other ranks")
    assert "of 1 CUDA graph on record, 8.0 % of a step" in replays
    assert xid.startswith(XID)
    told = json.loads(said(job, str(job.pid(0)), "status", "--format", "json"))["device"]
    assert told["sample"]["throttled"] is None
    assert told["stages"]["forward"] == pytest.approx(0.08)


def test_memory_tells_who_has_the_device(job: Job) -> None:
    """Processes and this one's part as the driver counts them, and damage, below its line."""
    shown = said(job, str(job.pid(1)), "memory", "-n", "0").splitlines()
    at = next(number for number, line in enumerate(shown) if line.startswith("cuda:1 "))
    assert shown[at + 1].strip() == (
        "2 processes on it, this one with 3.00 GiB, the others and the driver with 1.00 GiB;"
        " 2 uncorrectable memory errors since the driver was loaded"
    )
    assert shown[at + 2].strip().startswith(XID)


def test_stragglers_measures_by_the_clocks_of_devices(job: Job) -> None:
    """Waiting apart from transfer: the rank that waits for none has more of its own, and why."""
    shown = said(job, "-t", "all", "stragglers")
    assert "rank 1 is a straggler: 50 ms of its own per step where others need 47 ms" in shown
    assert "runs at 1,200 MHz where others have 1,980, held down by hardware thermal" in shown
    assert "by the clocks of their devices, without what these waited for" in shown
    assert "did not compute" not in shown, "it waits for its device"
    (row,) = [line for line in shown.splitlines() if line.split()[:1] == ["0"]]
    assert "  3 ms  " in row, "what rank 0 waits"
    assert row.endswith("1,980 MHz")


def test_profile_says_what_the_device_does_meanwhile(job: Job) -> None:
    """The same lines, in front of the tables."""
    shown = said(job, str(job.pid(0)), "profile", "--steps", "1")
    head, _, _ = shown.partition("kind of work")
    assert "device cuda:0: 97 % busy, 650 of 700 W, 1,980 MHz, 61 C" in head
    assert "a step takes 50 ms on the device (forward 8.0 %" in head


def test_hang_tells_what_devices_did_when_nobody_is_to_be_named(job: Job) -> None:
    """Busy does not mean that it gets on; an error of the driver's is told of whichever rank."""
    shown = said(job, "-t", "all", "hang")
    assert XID in " ".join(shown.split())
    (job.cwd / "halt").touch()
    job.wait_for_output("halted")
    found = [""]

    def has_stopped() -> bool:
        found[0] = " ".join(said(job, "-t", "all", "hang").split())
        return "Rank 0: device cuda:0: 97 % busy, 650 of 700 W, 1,980 MHz" in found[0]

    wait_until(has_stopped, "a verdict that names the devices")
    assert "(a collective that waits there keeps it busy, too)" in found[0]
    assert f"Of the device of rank 1, {XID}" in found[0]
