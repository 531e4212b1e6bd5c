"""A process that forks while its agent is asked: what becomes of the children."""

from __future__ import annotations

import json
import operator
import threading
from collections.abc import Callable

import pytest

import probing
from probing.errors import NotAnswering, ProbingError
from probing.rundir.folders import RunDirectory
from tests import faults
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

CLIENTS = 3
PAUSE_S = 0.04
"""Between two questions each; more than 200 requests a second are refused (max_requests_per_s)."""
METHODS = ("fork", "spawn", "forkserver")


def ends_under_load(
    target: Target, monkeypatch: pytest.MonkeyPatch, deadline_s: float
) -> tuple[dict[str, int], int]:
    """How the children ended while clients asked all the time, and how many answers those got.

    The forks begin once each client has had an answer, and end once each has had one more.
    """
    target.wait_for_output("ready")
    target.wait_for_agent()
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    is_over, answers = threading.Event(), [0] * CLIENTS
    failures: list[ProbingError] = []

    def ask_on(place: int) -> None:
        process = probing.connect(target.pid)
        while not is_over.wait(PAUSE_S):
            try:
                process.eval("6 * 7")
                process.status()
            except NotAnswering:  # within 2 s, on a machine with much to do
                continue
            except ProbingError as error:
                failures.append(error)
                return
            answers[place] += 1

    clients = [threading.Thread(target=ask_on, args=(place,)) for place in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        wait_until(lambda: failures or min(answers), "an answer for each client")
        before = list(answers)
        (target.cwd / "go").touch()
        wait_until(
            lambda: failures or all(map(operator.gt, answers, before)),
            "one more, while there are forks",
        )
        (target.cwd / "heard").touch()
        target.wait_for_output("done", deadline_s)
    finally:
        is_over.set()
        for client in clients:
            client.join()
    assert failures == []
    lines = target.output.splitlines()
    ends = json.loads(next(line for line in lines if line.startswith("{")))
    found = [line for line in lines if line.startswith("found in a child: ")]
    return {**ends, **dict.fromkeys(found, 1)}, min(map(operator.sub, answers, before))


@pytest.mark.fault("T4")
@pytest.mark.parametrize("forks", [40, pytest.param(400, marks=pytest.mark.nightly)])
def test_a_storm_of_forks(
    forks: int,
    program: Callable[..., Target],
    monkeypatch: pytest.MonkeyPatch,
    fault: faults.Reached,
) -> None:
    """Each child logs, imports and starts a thread; each ends well, with nothing of the agent."""
    target = program("fork_storm", str(forks))
    ends, answers = ends_under_load(target, monkeypatch, 300)
    fault.equals(f"{forks} forks under load: how the children ended", {"0": forks}, ends)
    assert answers > 0
    (rows,) = (
        probing.connect(target.pid)
        .query("SELECT count(*) AS n FROM python.torch_trace WHERE stage = 'forward'")
        .to_pylist()
    )
    fault.equals(f"{forks} forks under load: calls of the parent on record", forks, rows["n"])
    folders = len(RunDirectory(target.home).folders())
    fault.equals(f"{forks} forks under load: run folders", 1, folders)


@pytest.mark.fault("T4")
def test_a_fork_waits_for_a_ring_that_is_being_made(
    program: Callable[..., Target], fault: faults.Reached
) -> None:
    """A child of that moment has no file of the ring: nobody there could close it."""
    target = program("fork_amid", PROBING="0")
    assert target.process.wait(DEADLINE_S) == 0, target.output
    fault.equals("a fork while a ring is made: its files in the child", "[]", target.output.strip())


@pytest.mark.fault("T4")
@pytest.mark.parametrize("moment", ["taking", "closing"])
def test_a_fork_amid_a_connection(
    moment: str, program: Callable[..., Target], fault: faults.Reached
) -> None:
    """The child has no descriptor of it, though no object of Python's knows it just then."""
    target = program("fork_connections", moment, PROBING="0")
    assert target.process.wait(DEADLINE_S) == 0, target.output
    what = f"a fork amid {moment} a connection: sockets before, and in the child"
    fault.equals(what, "2 0", target.output.strip())


@pytest.mark.fault("T4")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.nightly)])
def test_workers_of_loaders(
    method: str,
    rounds: int,
    program: Callable[..., Target],
    monkeypatch: pytest.MonkeyPatch,
    fault: faults.Reached,
) -> None:
    """Of any start method, again and again: each loads its data, and has nothing of the agent."""
    target = program("fork_storm", method, str(rounds))
    ends, answers = ends_under_load(target, monkeypatch, 120 + 20 * rounds)
    fault.equals(f"{rounds} loaders by {method}, under load", {"0": rounds}, ends)
    assert answers > 0
    assert target.find_folder() is not None
