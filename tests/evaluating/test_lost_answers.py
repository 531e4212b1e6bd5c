"""Actions whose answer never comes: what their row says, and what the command does."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import probing
from probing.messages.about.act import Commit, Lr
from probing.messages.rank_paths import endpoint_at
from probing.rundir.folders import RunDirectory
from probing.rundir.node_card import token_path
from tests.harness.targets import DEADLINE_S, Target, wait_until

if TYPE_CHECKING:
    from subprocess import CompletedProcess

pytestmark = pytest.mark.torch


def _rows(job: probing.Process) -> list[dict[str, Any]]:
    return job.query("SELECT state, step, changes, notes FROM python.actions").to_pylist()


def test_a_rate_is_on_record_as_soon_as_it_is_set(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the script keeps it shows two steps later; that it was set, before those end."""
    target = program("acted", "told")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    _let(target, *range(4))
    target.wait_for_step(3)
    job = probing.connect(target.pid, timeout_s=DEADLINE_S)
    prepared = job.prepare_act(Lr(scale=0.5), ranks=1)
    job.commit_act(Commit(number=prepared.number, position=prepared.position))
    _let(target, 4, 5)  # it is set as step 5 begins, and the look at the rate needs step 6
    wait_until(lambda: _rows(job)[0]["state"] is not None, "the state of the action")
    (row,) = _rows(job)
    assert row["state"] == "done", row
    assert row["changes"].startswith("lr of group 0: "), row
    assert job.acts().acts[0].state is None  # of which who waits for the look is told nothing yet
    target.kill()
    assert _rows(job) == [row]


IN_FLIGHT = {
    "act": (("act", "lr", "--scale", "0.5"), "actions", 4, "Nothing was changed."),
    "eval": (
        ("eval", "--now", "__import__('time').sleep(1000)"),
        "evals",
        3,
        "The code may have run: `probing PID query ",
    ),
}
"""A command, the table of its row, and what it ends with and says."""


@pytest.mark.parametrize("name", IN_FLIGHT)
def test_a_command_whose_agent_is_detached_says_that(
    name: str, program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing of TLS, but whether anything was done, or how to look."""
    words, table, code, says = IN_FLIGHT[name]
    target = program("acted", "hangs")
    target.wait_for_step(4)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid, timeout_s=DEADLINE_S)
    wait_until(lambda: "5 " in (target.cwd / "losses.txt").read_text(), "the last step")
    done: list[CompletedProcess[str]] = []

    def act() -> None:
        limit = ("--timeout", f"{DEADLINE_S:g}")
        done.append(target.run(*limit, str(target.pid), *words))

    acting = threading.Thread(target=act)
    acting.start()
    wait_until(lambda: job.query(f"FROM python.{table}").to_pylist(), "its row")
    assert target.run(str(target.pid), "detach", "--keep-record").returncode == 0
    acting.join(DEADLINE_S)
    (ended,) = done
    said = " ".join(ended.stderr.split())
    assert ended.returncode == code, said
    assert "agent was detached meanwhile" in said
    assert says.replace("PID", str(target.pid)) in said
    assert "TLS" not in said
    assert [(row["state"], row["changes"]) for row in _rows(job)] in ([], [("refused", None)])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[[Target], str]]:
    """Starts a node server beside a training; gives what the training is called behind it."""
    started: list[Target] = []

    def start(target: Target) -> str:
        argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"]
        (tmp_path / "node").mkdir()
        server = Target(argv, target.home, tmp_path / "node")
        started.append(server)
        server.wait_for_output("listening on")
        found = re.search(r"listening on (\S+);", server.output)
        assert found is not None
        return endpoint_at(f"http://{found[1]}", target.folder.path.name)

    yield start
    for server in started:
        server.reap()


ENDS = {
    "hangs": "whether action 1 was applied is not known: by its record it was asked for",
    "told": "action 1 was applied before step 5.",
}
"""A training that ends while an action is under way, and what is said of the action."""


@pytest.mark.parametrize("way", ["here", "node"])
@pytest.mark.parametrize("kind", ENDS)
def test_of_a_training_that_ends_it_is_said_whether_the_action_was_applied(
    kind: str,
    way: str,
    program: Callable[..., Target],
    node: Callable[[Target], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its record, on its machine and through a node server."""
    target = program("acted", kind)
    _let(target, *range(4))
    target.wait_for_step(4 if kind == "hangs" else 3)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    record = probing.connect(target.pid, timeout_s=DEADLINE_S)
    if kind == "hangs":
        wait_until(lambda: "5 " in (target.cwd / "losses.txt").read_text(), "the last step")
    endpoint = node(target) if way == "node" else str(target.pid)
    token = _token_of(target) if way == "node" else None
    lost: list[probing.ProbingError] = []

    def act() -> None:
        with pytest.raises(probing.ProbingError) as caught:
            probing.connect(endpoint, token=token, timeout_s=DEADLINE_S).act(Lr(scale=0.5))
        lost.append(caught.value)

    acting = threading.Thread(target=act)
    acting.start()
    wait_until(lambda: _rows(record), "its row")
    if kind == "told":
        _let(target, 4, 5)  # it is set as step 5 begins, and the look at the rate needs step 6
        wait_until(lambda: _rows(record)[0]["state"] is not None, "the state of the action")
    target.kill()
    acting.join(DEADLINE_S)
    (error,) = lost
    assert error.code == "process_ended"
    says = f"process {target.pid} has ended, so no answer came: {ENDS[kind]}"
    assert error.message.startswith(says)
    assert "may have been applied" not in error.help


def _token_of(target: Target) -> str:
    """What the node server beside a training asks for."""
    return token_path(RunDirectory(target.home)).read_text().strip()


def _let(target: Target, *steps: int) -> None:
    """Let it make these steps."""
    for step in steps:
        (target.cwd / f"go-{step}").touch()
