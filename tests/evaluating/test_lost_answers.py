"""Actions whose answer never comes: what their row says, and what the command does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import probing
from probing.messages.about.act import Commit, Lr
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


def _let(target: Target, *steps: int) -> None:
    """Let it make these steps."""
    for step in steps:
        (target.cwd / f"go-{step}").touch()
