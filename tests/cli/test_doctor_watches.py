"""`probing doctor` of several processes at once, and as a watch that goes on."""

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

from probing.stacks.work_done import children_of
from tests.harness.doctor import LONG_S, sure
from tests.harness.jobs import StartJob
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.torch

Start = Callable[..., Target]


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


@pytest.mark.parametrize(
    ("way", "is_told"),
    [
        ("each", True),
        ("once", False),
        *(pytest.param(way, True, marks=pytest.mark.nightly) for way in ("unused", "views")),
        *(
            pytest.param(way, False, marks=pytest.mark.nightly)
            for way in ("measured", "twice", "sharper")
        ),
    ],
)
def test_gradients_that_each_pass_averages_are_told(
    job: StartJob, way: str, *, is_told: bool
) -> None:
    """Once in a step is enough where they are added up, and twice where they are not."""
    started = job("accumulating", way, ranks=2)
    for rank in range(2):
        started.wait_for_rank(rank, "step 20")
    done = started.run("-t", "all", "doctor", "--format", "json", "--timeout", LONG_S)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert "no-sync" not in {rule for one in report["not_looked_at"] for rule in one["rules"]}
    found = {one["rule"]: one for one in report["findings"]}
    assert ("no-sync" in found) is is_told
    assert not is_told or "in each of the 4 backward passes" in found["no-sync"]["summary"]


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
    (left_out,) = (line for line in err.splitlines() if "not looked at:" in line)
    assert "zero-gradients" in left_out


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
        words = Path(f"/proc/{watching[0]}/cmdline").read_bytes()
        server.terminate()
        server.wait(DEADLINE_S)
    assert (bodies[0]["event"], bodies[0]["rule"]) == ("begun", "ended")
    assert b"--webhook" in words
    assert address.encode() not in words, "all users of the machine can read it"
    assert len(watching) == 1
    wait_until(lambda: not Path(f"/proc/{watching[0]}").exists(), "the end of the watch")
