"""What node servers are started with, and where they leave their addresses."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from probing.agent import announcing
from probing.cluster.job.plans import plan_of
from probing.cluster.node import registering
from probing.cluster.node.__main__ import _beside, _place
from probing.cluster.node.registering import Registrar
from probing.cluster.node.server import take_place
from probing.cluster.registration import Registration, register
from probing.errors import Unreachable
from probing.rundir.folders import RunDirectory

pytestmark = pytest.mark.anypython


def test_each_job_at_an_address_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store at the usual port is another one with the next job, and one that fails is retried."""
    told: list[Any] = []
    is_away: list[bool] = []

    def tell(host: str, port: int, *, attempt: int, listen: str) -> None:
        told.append((host, port, attempt, listen))
        if is_away and is_away.pop():
            raise Unreachable("the store does not answer")

    monkeypatch.setattr(registering, "register_in_store", tell)
    monkeypatch.setattr(registering, "store_of", lambda pid: ("h", 29500, 0) if pid < 90 else None)
    monkeypatch.setattr(registering, "_STORE_S", 0.0)
    directory, registrar = RunDirectory(tmp_path), Registrar("n:1", "")

    def look(*pids: int) -> int:
        told.clear()
        registrar.look([directory.folder_for(pid, 1) for pid in pids])
        return len(told)

    is_away.append(True)
    assert [look(1, 2), look(1, 2), look(1, 2, 3), look(3), look(3, 99)] == [1, 1, 0, 0, 0]
    assert told == []
    assert [look(4, 5), look(4)] == [1, 0], "the next job, before a look saw none"
    assert [look(), look(4), look(99)] == [0, 1, 0]


def test_each_node_server_has_its_own_machine_watched(tmp_path: Path) -> None:
    """What the job's directory lists is the other machines': they would tell each finding, too."""
    there = Registration(
        kind="node", listen="b:1", host="b", pid=5, start_time=1, boot_id="another",
        pid_namespace=1, registered_ns=time.time_ns(),
    )  # fmt: skip
    register(tmp_path, there)
    given = {"PROBING_JOB_DIR": str(tmp_path), "PROBING": "1", "PROBING_TOKEN": "t"}
    assert plan_of("all", given).told == ("b:1",)
    assert _beside(given) == {"PROBING_TOKEN": "t"}


def test_files_are_where_they_were_for_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node server works in another folder than the training whose variables it gets."""
    monkeypatch.chdir(tmp_path)
    given = {"HISTORY": "runs", "JOB_DIR": "../shared", "TLS_CERT": "/c.pem", "HOST": "here"}
    for name, value in given.items():
        monkeypatch.setenv(f"PROBING_{name}", value)
    seen = announcing._environment(RunDirectory(tmp_path))
    assert [seen[f"PROBING_{name}"] for name in given] == [
        str(tmp_path / "runs"), str(tmp_path.parent / "shared"), "/c.pem", "here"
    ]  # fmt: skip
    monkeypatch.setenv("PROBING_HISTORY", "s3://bucket/runs")
    assert announcing._environment(RunDirectory(tmp_path))["PROBING_HISTORY"] == "s3://bucket/runs"


def test_a_go_between_that_does_not_end_is_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent answers nobody meanwhile."""
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(announcing, "_START_S", 0.05)
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        announcing.start_node(RunDirectory(tmp_path), {})
    assert time.monotonic() - began < 30


def test_a_node_server_that_makes_its_last_round_has_a_successor(tmp_path: Path) -> None:
    """It has the place, and no card any more; who is started meanwhile gets it in the end."""
    directory = RunDirectory(tmp_path)
    held = take_place(directory)
    assert held is not None
    assert _place(directory, 0.0) is None
    threading.Timer(0.2, os.close, (held,)).start()
    place = _place(directory, 60.0)
    assert place is not None
    os.close(place)
