"""`probing doctor` on real trainings: what is said of one with a fault, and of one without."""

from __future__ import annotations

import http.server
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.jobs import StartJob
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.torch

Start = Callable[..., Target]
LONG_S = "80"
"""As long as a busy machine may take for looks that take 4 s on one that is not."""


@pytest.fixture
def ailing(program: Start) -> Iterator[Callable[[str, int], Target]]:
    """Start the training with a fault, and wait for a step; what it leaves in memory is removed."""
    started: list[Target] = []

    def start(way: str, step: int) -> Target:
        target = program("ailing", way)
        started.append(target)
        target.wait_for_step(step)
        return target

    yield start
    for target in started:
        target.reap()
        for path in Path("/dev/shm").glob(f"ailing-{target.pid}-*"):
            path.unlink()


@pytest.fixture
def posted() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook: its address, and what it was posted."""
    bodies: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
        server.shutdown()
        thread.join()


def children_of(pid: int) -> list[int]:
    """The processes that it has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def examine(target: Target, *words: str) -> dict[str, Any]:
    """What the doctor says, as JSON."""
    whole = ("--timeout", LONG_S) if "--timeout" not in words else ()
    done = target.run(*whole, str(target.pid), "doctor", "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def sure(report: dict[str, Any]) -> list[str]:
    """The rules of what is certain or likely, in their order."""
    return [f["rule"] for f in report["findings"] if f["certainty"] != "possible"]


def test_a_healthy_training_has_nothing(ailing: Callable[[str, int], Target]) -> None:
    """Nothing certain or likely is said, subjects are healthy, and what is not known is told."""
    target = ailing("well", 120)
    report = examine(target)
    assert sure(report) == []
    assert {"progress", "loss", "gradients", "parameters", "threads and processes"} <= set(
        report["healthy"]
    )
    missed = {rule for one in report["not_looked_at"] for rule in one["rules"]}
    assert {"tf32-off", "synchronises", "host-bound"} <= missed
    assert report["steps"] >= 100
    checked = target.run("--timeout", LONG_S, str(target.pid), "doctor", "--check", "likely")
    assert checked.returncode == 0, checked.stdout
    assert "healthy: " in checked.stdout
    hurried = examine(target, "--timeout", "1")  # two seconds of samples do not fit in
    assert "own-code" in [name for missed in hurried["not_looked_at"] for name in missed["rules"]]


@pytest.mark.parametrize(
    ("way", "rule", "step"),
    [
        ("vanishing", "vanishing-gradients", 60),
        ("dead", "zero-gradients", 60),
        ("not-zeroed", "not-zeroed", 150),
        ("reseeded", "reseeded", 60),
    ],
)
def test_a_fault_of_the_numbers_is_named(
    ailing: Callable[[str, int], Target], way: str, rule: str, step: int
) -> None:
    """The fault is likely, and the report says what follows from it and what to type."""
    target = ailing(way, step)
    report = examine(target)
    assert rule in sure(report), report
    finding = next(found for found in report["findings"] if found["rule"] == rule)
    assert finding["evidence"]
    assert finding["fix"]
    assert f"probing {target.pid} " in finding["next"]


@pytest.mark.parametrize(
    ("way", "rule"),
    [
        ("zeroed", "thrown-gradients"),
        ("skips", "thrown-gradients"),
        ("rounded", "no-update"),
        ("stale", "no-optimizer"),
        ("denormal", "denormals"),
    ],
)
def test_what_becomes_of_gradients_is_named(program: Start, way: str, rule: str) -> None:
    """Gradients that are thrown away, change nothing, or leave numbers that only decay."""
    target = program("updating", way)
    target.wait_for_step(300 if way == "denormal" else 100)
    report = examine(target)
    found = {one["rule"]: one["certainty"] for one in report["findings"]}
    assert rule in found, report
    assert way == "denormal" or found[rule] != "possible"  # it is not slower within seconds


@pytest.mark.parametrize(
    ("way", "rule", "words"),
    [("scheduled", "scheduler-first", "at updating.py:"), ("sizes", "broadcast-loss", "[32, 32]")],
)
def test_what_torch_has_warned_of_is_told(program: Start, way: str, rule: str, words: str) -> None:
    """The warnings that nobody read are findings, with the line of the script."""
    target = program("updating", way)
    target.wait_for_step(30)
    sql = "SELECT category FROM python.warnings WHERE file LIKE '%updating.py'"
    asked = target.run(str(target.pid), "query", "--format", "csv", sql)
    assert asked.stdout.splitlines() == ["category", "UserWarning"], asked.stderr
    found = {one["rule"]: one for one in examine(target)["findings"]}
    assert found[rule]["certainty"] == "likely"
    assert words in found[rule]["summary"]


@pytest.mark.parametrize("way", ["accumulates", "attacks", "flushed"])
def test_what_looks_like_lost_gradients_is_healthy(program: Start, way: str) -> None:
    """Accumulation, gradients of inputs alone, and a processor that takes denormals for 0."""
    target = program("updating", way)
    target.wait_for_step(300 if way == "flushed" else 100)
    report = examine(target)
    assert sure(report) == []
    assert "denormals" not in {found["rule"] for found in report["findings"]}


@pytest.mark.parametrize(("way", "is_lost"), [("lost", True), ("kept", False)])
def test_channels_last_is_lost_between_convolutions(
    program: Start, way: str, *, is_lost: bool
) -> None:
    """What undoes it is told; a batch that the first convolution puts right is not."""
    target = program("imaging", way)
    target.wait_for_step(30)
    rules = {one["rule"]: one["summary"] for one in examine(target)["findings"]}
    assert ("channels-last-lost" in rules) is is_lost
    assert not is_lost or "3 of 3 convolutions" in rules["channels-last-lost"]


def test_what_piles_up_is_named(ailing: Callable[[str, int], Target]) -> None:
    """Descriptors, threads, children and files in shared memory that come one by one are found."""
    target = ailing("piling", 640)
    report = examine(target)
    assert {"descriptors", "threads", "processes", "shared-memory-files"} <= set(sure(report))
    words = " ".join(finding["summary"] for finding in report["findings"])
    assert "trace.log" in words
    assert "upload-N" in words


def test_a_hang_comes_first_and_the_exit_code_tells(program: Start) -> None:
    """A training that waits for ever is told, as text and as Markdown."""
    target = program("hung", "lock")
    target.wait_for_output("ready")

    def hangs() -> subprocess.CompletedProcess[str] | None:
        done = target.run(str(target.pid), "doctor", "--check", "certain")
        return done if done.returncode == 1 else None

    done = wait_until(hangs, "a hang that is certain")
    first = done.stdout.splitlines()[0]
    assert first.startswith(" 1 ")
    assert first.endswith("certain")
    markdown = target.run(str(target.pid), "doctor", "--format", "markdown").stdout
    assert markdown.startswith("# What is wrong with")
    assert "**certain**, `hang`" in markdown


def test_a_dead_producer_is_named_with_its_error(program: Start) -> None:
    """A training that waits for what nobody brings any more is told with the thread that did."""
    target = program("fed")
    target.wait_for_step(30)

    def hangs() -> str:
        found = {one["rule"]: one for one in examine(target)["findings"]}
        is_sure = "hang" in found and found["hang"]["certainty"] == "certain"
        return str(found["hang"]["summary"]) if is_sure else ""

    words = wait_until(hangs, "a hang that is certain")
    assert "waiting for an item from a queue" in words
    assert "its thread producer ended with an unhandled KeyError: 30" in words
    assert "fed.py:18 in produce" in words


def test_a_killed_training_is_told_from_its_record(ailing: Callable[[str, int], Target]) -> None:
    """After SIGKILL the end is the first finding, and rules that need an answer say so."""
    target = ailing("well", 30)
    target.kill(signal.SIGKILL)
    report = examine(target)
    assert report["findings"][0]["rule"] == "ended"
    missed = {name for one in report["not_looked_at"] for name in one["rules"]}
    assert {"no-optimizer", "float64"} <= missed
    assert "loss" in report["healthy"]


def test_a_job_of_ranks_is_one_patient(job: StartJob) -> None:
    """Findings of several ranks are one, with the ranks that they are about."""
    started = job("ailing", "same", ranks=2)
    for rank in range(2):
        started.wait_for_rank(rank, "step 40")
    done = started.run("-t", "all", "doctor", "--timeout", LONG_S, "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["about"] == "ranks 0-1"
    assert report["findings"][0]["rule"] == "same-data"
    assert "different-parameters" not in sure(report)


def test_a_module_outside_of_ddp_is_told_as_such(job: StartJob) -> None:
    """What differs is named with the reason, and the advice is to wrap it, not to broadcast."""
    started = job("ailing", "outside", ranks=2)
    for rank in range(2):
        started.wait_for_rank(rank, "step 40")

    def told() -> dict[str, Any] | None:
        done = started.run("-t", "all", "doctor", "--format", "json", "--timeout", "60")
        assert done.returncode == 0, done.stderr
        found = {one["rule"]: one for one in json.loads(done.stdout)["findings"]}
        return found.get("different-parameters")

    finding = wait_until(told, "a look at the parameters of both ranks")
    assert "all of Linear: outside of DistributedDataParallel" in finding["summary"]
    assert finding["fix"].startswith("Wrap it, too")


def test_a_process_that_is_not_there(training: Target) -> None:
    """One sentence and an exit code, no traceback."""
    done = training.run("999999", "doctor")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_watch_tells_the_end_and_ends(ailing: Callable[[str, int], Target]) -> None:
    """A watch of one process tells that it was killed, as a JSON line, and is over with it."""
    target = ailing("well", 30)
    words = ["doctor", "--watch", "--every", "1", "--format", "json", "--check", "likely"]
    with subprocess.Popen(
        [sys.executable, "-m", "probing", str(target.pid), *words],
        env=target.env, cwd=target.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as watch:  # fmt: skip
        wait_until(lambda: target.step() > 60, "some steps")
        target.kill(signal.SIGKILL)
        out, err = watch.communicate(timeout=DEADLINE_S)
    assert watch.returncode == 1, err
    told = [json.loads(line) for line in out.splitlines()]
    assert [(one["event"], one["rule"]) for one in told][-1] == ("begun", "ended")
    assert "has ended: nothing is left to watch" in err


def test_a_mistake_in_a_watch_is_one_sentence(training: Target) -> None:
    """An address that is none is refused before anything is looked at."""
    done = training.run(str(training.pid), "doctor", "--watch", "--webhook", "ftp://x")
    assert done.returncode == 2
    assert "is not an address that begins with http" in done.stderr


def test_a_node_server_has_somebody_watch(
    ailing: Callable[[str, int], Target], posted: tuple[str, list[dict[str, Any]]]
) -> None:
    """With PROBING_WATCH it starts a process that posts what is wrong, and that ends with it."""
    address, bodies = posted
    target = ailing("well", 30)
    target.kill(signal.SIGKILL)
    argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"]
    env = {**target.env, "PROBING_WATCH": f"{address}/hook"}
    with subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL) as server:
        wait_until(lambda: bodies, "an event")
        watching = children_of(server.pid)
        server.terminate()
        server.wait(DEADLINE_S)
    assert (bodies[0]["event"], bodies[0]["rule"]) == ("begun", "ended")
    assert len(watching) == 1
    wait_until(lambda: not Path(f"/proc/{watching[0]}").exists(), "the end of the watch")


def test_each_of_several_processes_has_its_own_verdict(
    ailing: Callable[[str, int], Target], program: Start
) -> None:
    """One that hangs keeps nobody from looking at another, and each finding says whose it is."""
    hung = program("hung", "lock")
    hung.wait_for_output("ready")
    dead = ailing("dead", 60)
    assert hung.home == dead.home

    def told() -> list[dict[str, Any]]:
        words = ["-t", str(hung.pid), "-t", str(dead.pid), "--timeout", LONG_S]
        words += ["doctor", "--format", "json"]
        done = dead.run(*words)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
        return found if found and found[0]["rule"] == "hang" else []

    found = {one["rule"]: one for one in wait_until(told, "the hang")}
    assert str(hung.pid) in found["hang"]["summary"]
    assert found["zero-gradients"]["who"] == f"process {dead.pid}"
    assert found["zero-gradients"]["summary"].startswith(f"Process {dead.pid}: ")
