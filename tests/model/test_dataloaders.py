"""What is known of data loaders: the record of waits, the live table, and who is to blame."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

import probing
from tests.harness.doctor import examine
from tests.harness.targets import Target, wait_until

pytestmark = pytest.mark.torch

WAYS = (
    "single",
    "two_workers",
    "persistent",
    "stream",
    "encoded",
    "dies",
    "raises",
    "in_another_thread",
    "one_inside_another",
)
BATCHES = (
    "SELECT loader, batch, worker, samples, tokens, bytes, tensors, device, pinned, exhausted,"
    " failed, duration IS NULL AS open FROM python.batches ORDER BY seq"
)
Rows = list[dict[str, Any]]
Ask = Callable[[str], Rows]


@pytest.fixture
def feed(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Target, Ask]]:
    """Runs ways of feeding a training with the agent; hands over what asks for the record."""

    def run(*ways: str, until: str = "done") -> tuple[Target, Ask]:
        target = program("loading", *ways)
        target.wait_for_output(until)
        monkeypatch.setenv("PROBING_HOME", str(target.home))

        def ask(sql: str) -> Rows:
            process = probing.connect(target.pid)
            assert process.status().problems == ()
            return process.query(sql).to_pylist()

        return target, ask

    return run


Feed = Callable[..., tuple[Target, Ask]]


def losses(target: Target) -> list[str]:
    """What the program printed of its steps and of what its epochs raised.

    What torch says of a dead worker depends on how it came to know: no text is compared.
    """
    lines = [line for line in target.output.splitlines() if line.startswith(("step", "raised"))]
    return [" ".join(line.split()[: 2 if line.startswith("raised") else 3]) for line in lines]


@pytest.mark.parametrize("way", WAYS)
def test_the_training_is_fed_as_without_the_agent(
    way: str, program: Callable[..., Target], feed: Feed
) -> None:
    """Batches, exceptions and losses are bit for bit what they are without the agent."""
    bare = program("loading", way, PROBING="0")
    target, _ = feed(way)
    bare.wait_for_output("done")
    assert losses(target) == losses(bare)
    assert losses(target)
    card = target.folder.read_card()
    assert card is not None
    assert card.problems == ()


def test_a_batch_is_a_row(feed: Feed) -> None:
    """Each wait is a row with what the batch is made of; the last of an epoch brings none."""
    target, ask = feed("single")
    made = "input_ids: int64[{0},6], labels: int64[{0},6]"
    expected: list[tuple[object, ...]] = [
        (index, samples, samples * 6, samples * 96, made.format(samples), "cpu", False, False)
        for index, samples in enumerate((4, 4, 2))
    ]
    expected.append((3, None, None, None, None, None, None, True))
    rows = ask(BATCHES)
    columns = ("batch", "samples", "tokens", "bytes", "tensors", "device", "pinned", "exhausted")
    assert [tuple(row[column] for column in columns) for row in rows] == expected
    assert {(row["loader"], row["worker"], row["failed"], row["open"]) for row in rows} == {
        (0, None, False, False)
    }
    between = "SELECT dataset, batches, epochs, given, waiting, batch FROM python.dataloaders"
    assert [tuple(row.values()) for row in ask(between)] == [("Sums", 3, 1, 3, False, None)]
    shown = target.run(str(target.pid), "dataloaders").stdout
    assert "between two epochs; 3 batches given since the agent came" in shown


def test_a_batch_belongs_to_the_step_that_uses_it(feed: Feed) -> None:
    """A wait stands beside the module calls that its batch goes through, and before them."""
    _, ask = feed("single")
    rows = ask(
        "SELECT b.step, b.start_ns + b.duration_ns <= t.start_ns AS before FROM python.batches b"
        " JOIN python.torch_trace t USING (step) WHERE t.stage = 'forward' AND t.depth = 0"
        " AND NOT b.exhausted ORDER BY ALL"
    )
    assert rows == [{"step": step, "before": True} for step in range(3)]


def test_workers_are_known_by_their_batches(feed: Feed) -> None:
    """With workers each row names the one that made it, in turn; every epoch counts from 0."""
    _, ask = feed("persistent")
    rows = ask(BATCHES)
    made = [(row["batch"], row["worker"]) for row in rows if not row["exhausted"]]
    assert [batch for batch, _ in made] == [0, 1, 2, 0, 1, 2]
    assert [worker for _, worker in made[:3]] == [0, 1, 0]
    assert {row["loader"] for row in rows} == {0}


@pytest.mark.parametrize("ways", [(), ("tells",)])
def test_a_stream_that_each_worker_may_yield_whole_is_told(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, ways: tuple[str, ...]
) -> None:
    """Unless a worker is told which it is; one that asks is known by its module's code."""
    target = program("whole_stream", *ways)
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)

    def begun() -> Rows:
        rows = process.query("SELECT * FROM python.dataloaders").to_pylist()
        return [row for row in rows if row["given"]]

    rows = wait_until(begun, "a batch")
    assert [row["divides_stream"] for row in rows] == [bool(ways)] * 2
    found = [one["summary"] for one in examine(target)["findings"] if one["rule"] == "whole-stream"]
    assert [one.partition(", so")[0] for one in found] == [
        "Each of the 2 workers of loader 0 may yield all of Lines"
    ] * (not ways)


def test_a_stream_whose_workers_end_unevenly(feed: Feed) -> None:
    """A worker that has no more samples is never named for a batch of another's."""
    _, ask = feed("stream")
    rows = [row for row in ask(BATCHES) if not row["exhausted"]]
    with_workers = [(row["samples"], row["worker"]) for row in rows if row["loader"] == 0]
    assert [samples for samples, _ in with_workers] == [2, 4, 2]
    assert with_workers[0][1] == 0
    assert {worker for _, worker in with_workers[1:]} <= {1, None}
    assert [row["samples"] for row in rows if row["loader"] == 1] == [2]


def test_a_dictionary_of_a_tokenizer_is_looked_into(feed: Feed) -> None:
    """What transformers' tokenizers return is no dict, and its tensors have names all the same."""
    _, ask = feed("encoded")
    assert ask(BATCHES)[0]["tensors"] == "input_ids: int64[4,6], labels: int64[4,6]"


@pytest.mark.parametrize("way", ["dies", "raises"])
def test_a_wait_that_fails_is_a_failed_row(way: str, feed: Feed) -> None:
    """A worker that dies and a sample that raises leave a row that says so."""
    target, ask = feed(way)
    rows = ask(BATCHES)
    failed = [row for row in rows if row["failed"]]
    assert len(failed) == target.output.count("raised")
    assert {(row["samples"], row["exhausted"], row["open"]) for row in failed} == {
        (None, False, False)
    }


def test_a_prefetching_thread_is_on_record(feed: Feed) -> None:
    """Waits of other threads are rows with that thread's number."""
    target, ask = feed("in_another_thread")
    (row,) = ask("SELECT DISTINCT thread_id FROM python.batches")
    assert row["thread_id"] != target.pid


def test_a_hung_worker_is_named_with_its_stack(feed: Feed) -> None:
    """The wait is an open row; the command names worker, pid and the line that it is in."""
    target, ask = feed("hangs", until="ready")

    def stall() -> dict[str, Any] | None:
        done = target.run(str(target.pid), "dataloaders", "--format", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] | None = next(iter(json.loads(done.stdout)["stalls"]), None)
        frames = found["stack"]["frames"] if found and found["stack"] else []
        # It may just be looking whether to go on.
        is_asleep = frames and (frames[0]["line"] or "").strip() == "time.sleep(0.5)"
        return found if is_asleep else None

    found = wait_until(stall, "a stall")
    (row,) = [row for row in ask(BATCHES) if row["open"]]
    assert (row["batch"], row["worker"]) == (1, found["worker"]) == (1, 1)
    live = ask("SELECT * FROM python.dataloaders WHERE awaited")
    assert [(r["worker"], r["pid"], r["waiting"]) for r in live] == [(1, found["pid"], True)]
    assert live[0]["waited"] >= 1
    assert live[0]["resident_bytes"] > 1 << 20
    frame = found["stack"]["frames"][0]
    assert frame["func"].endswith("__getitem__")
    place = f"(loading.py:{frame['lineno']}): sleeping"

    def told() -> str | None:
        shown = target.run(str(target.pid), "dataloaders").stdout
        return shown if place in shown else None  # it may just be looking whether to go on

    text = wait_until(told, "its line")
    assert f"for worker 1 (pid {found['pid']}), which is in " in text
    assert "_worker_loop" not in text
    says = f"waiting for a batch from DataLoader worker 1 (pid {found['pid']})"
    assert says in target.run(str(target.pid), "backtrace").stdout
    hang = " ".join(target.run(str(target.pid), "hang").stdout.split())
    assert f"1. `probing -t {target.pid} dataloaders`: which worker it waits for" in hang


def test_a_loader_without_workers_hangs_by_itself(feed: Feed) -> None:
    """Without workers it is the training that makes the batch: its own stack is shown."""
    target, _ = feed("hangs_without_workers", until="ready")

    def text() -> str:
        shown = target.run(str(target.pid), "dataloaders").stdout
        return shown if "has waited" in shown else ""

    shown = wait_until(text, "a stall")
    assert "the training has waited" in shown
    assert "for a batch that it makes itself, in Stuck.__getitem__ (loading.py:" in shown


@pytest.mark.parametrize("way", ["hangs", "hangs_of_a_server"])
def test_hang_says_what_the_worker_does(feed: Feed, way: str) -> None:
    """However the workers are started, they are alive, and the line of the one is told at once."""
    target, ask = feed(way, until="ready")
    pattern = (
        r"is in the DataLoader \(waiting for a batch from DataLoader worker 1 \(pid (\d+)\), which"
        r" is sleeping at loading\.py:\d+ in __getitem__\), at loading\.py:\d+ in train"
    )

    def said() -> re.Match[str] | None:
        return re.search(pattern, " ".join(target.run(str(target.pid), "hang").stdout.split()))

    found = wait_until(said, "what the worker does")
    rows = ask("SELECT pid, state, cpu_s, awaited FROM python.dataloaders")
    for row in rows:  # those of a fork server outlive a training that is killed
        os.kill(row["pid"], signal.SIGKILL)
    (awaited,) = [row for row in rows if row["awaited"]]
    assert awaited["pid"] == int(found[1])
    assert awaited["state"] in {"S", "R"}  # it looks twice a second whether to go on
    assert all(row["cpu_s"] is not None for row in rows)


def test_a_hang_that_began_before_the_agent_came(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who attaches to a job that hangs in its loader sees the worker, without a time."""
    target = program("loading", "hangs", PROBING="0")
    target.wait_for_output("step 0")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    in_wait = "for batch in batches"
    wait_until(lambda: in_wait in target.run(str(target.pid), "backtrace").stdout, in_wait)
    done = target.run(str(target.pid), "dataloaders", "--attach")
    assert done.returncode == 0, done.stderr
    assert "the training has waited for worker 1 (pid " in done.stdout
    rows = probing.connect(target.pid).query("FROM python.dataloaders").to_pylist()
    assert {(row["waiting"], row["waited"], row["given"]) for row in rows} == {(True, None, 0)}


def test_no_loader_is_a_sentence(training: Target, program: Callable[..., Target]) -> None:
    """A process that has met none says so; one that has shows its workers as living processes."""
    target = program("idle", PROBING="all")
    target.wait_for_agent()
    assert "no DataLoader is alive" in target.run(str(target.pid), "dataloaders").stdout
    done = training.run(str(training.pid), "dataloaders", "--format", "json")
    (loader,) = json.loads(done.stdout)["loaders"]
    assert (loader["dataset"], loader["num_workers"]) == ("CharDataset", 2)
    assert all(worker["cpu_s"] is not None for worker in loader["workers"])


def test_recording_late_begins_with_a_whole_step(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After attaching, the batch of each recorded step is recorded, and no other."""
    target = program("loading", "for_ever", PROBING="0")
    target.wait_for_output("step 5")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    assert target.run("attach", str(target.pid)).returncode == 0
    target.wait_for_step(6)
    process = probing.connect(target.pid)
    whole = process.query("SELECT step FROM python.steps WHERE duration IS NOT NULL AND step < 6")
    steps = sorted(row["step"] for row in whole.to_pylist())
    rows = process.query(
        "SELECT step FROM python.batches WHERE step < 6 AND NOT exhausted ORDER BY step"
    )
    assert len(steps) >= 4
    assert [row["step"] for row in rows.to_pylist()] == steps
