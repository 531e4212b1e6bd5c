"""What node servers are started with, and where they leave their addresses."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent import announcing
from probing.agent.listener import attend
from probing.cluster.job.plans import plan_of
from probing.cluster.job.providers import job_store
from probing.cluster.job.providers.job_store import store_hosts
from probing.cluster.node import beside, registering, server
from probing.cluster.node.__main__ import _place
from probing.cluster.node.beside import _environment
from probing.cluster.node.registering import Registrar
from probing.cluster.node.server import NodeServer, take_place
from probing.cluster.registration import Registration, register
from probing.errors import Unreachable
from probing.rundir.folders import RunDirectory
from probing.server.access.tokens import Tokens
from probing.settings import Settings
from tests.harness.targets import DEADLINE_S, wait_until

pytestmark = pytest.mark.anypython


def test_each_job_at_an_address_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store at the usual port is another one with the next job, and one that fails is retried."""
    told: list[Any] = []
    is_away: list[bool] = []

    def tell(host: str, port: int, *, attempt: int, listen: str, registered: int | None) -> int:
        if registered is None:
            told.append((host, port, attempt, listen))
        if is_away and is_away.pop():
            raise Unreachable("the store does not answer")
        return attempt

    monkeypatch.setattr(registering, "register_in_store", tell)
    monkeypatch.setattr(registering, "store_of", lambda pid: ("h", 29500, 0) if pid < 90 else None)
    monkeypatch.setattr(registering, "_STORE_S", 0.0)
    monkeypatch.setattr(registering, "_AGAIN_S", 0.0)
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


class _Store:
    """A store that several machines reach."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}

    def __enter__(self) -> _Store:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to close."""

    def set(self, key: str, value: bytes) -> None:
        self.keys[key] = value

    def add(self, key: str, number: int) -> int:
        self.keys[key] = str(int(self.keys.get(key, b"0")) + number).encode()
        return int(self.keys[key])

    def get(self, key: str) -> bytes | None:
        return self.keys.get(key)


def test_a_machine_whose_restarts_are_behind_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails on one machine is counted there alone; all of the job start their ranks anew."""
    store, attempts = _Store(), dict.fromkeys(range(100), 0)
    monkeypatch.setattr(job_store, "TorchStore", lambda *_, **__: store)
    monkeypatch.setattr(registering, "store_of", lambda pid: ("h", 1, attempts[pid]))
    monkeypatch.setattr(registering, "_STORE_S", 0.0)
    monkeypatch.setattr(registering, "_AGAIN_S", 0.0)
    directory = RunDirectory(tmp_path)
    a, b, left = (Registrar(f"{name}:1", "") for name in ("a", "b", "left"))

    def look(registrar: Registrar, pid: int) -> tuple[str, ...]:
        registrar.look([directory.folder_for(pid, 1)])
        return store_hosts("h:1", timeout_s=1)

    look(left, 30)
    look(a, 10)
    assert look(b, 20) == ("left:1", "a:1", "b:1")
    attempts[11] = 1
    look(b, 21)
    assert look(a, 11) == ("a:1",), "the machine that has gone is left out"
    assert look(b, 21) == ("a:1", "b:1")
    store.set("probing/attempt", b"0")  # as one that has read it before the newest was written
    assert look(a, 11) == ("a:1", "b:1")
    written = dict(store.keys)
    look(a, 11)
    look(b, 21)
    assert store.keys == written, "it is written only where there is news"
    store.keys.clear()
    assert look(b, 21) == ("b:1",), "another store at the same address"


def test_each_node_server_has_its_own_machine_watched(tmp_path: Path) -> None:
    """What the job's directory lists is the other machines': they would tell each finding, too."""
    there = Registration(
        kind="node", listen="b:1", host="b", pid=5, start_time=1, boot_id="another",
        pid_namespace=1, registered_ns=time.time_ns(),
    )  # fmt: skip
    register(tmp_path, there)
    given = {"PROBING_JOB_DIR": str(tmp_path), "PROBING": "1", "PROBING_TOKEN": "t"}
    assert plan_of("all", given).told == ("b:1",)
    assert _environment(given) == {"PROBING_TOKEN": "t"}


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


def test_a_look_that_fails_is_told_once_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it keep a server that nobody needs any more from ending."""
    looks: list[int] = []
    told: list[str] = []

    def look(_: Registrar, __: object) -> None:
        looks.append(1)
        if len(looks) < 4:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Registrar, "look", look)
    monkeypatch.setattr(server, "_LOOK_S", 0.01)
    by_looks = SimpleNamespace(monotonic=lambda: 0.05 * len(looks))
    monkeypatch.setattr(server, "time", by_looks)  # however slow the machine
    settings = dataclasses.replace(Settings(), listen="127.0.0.1:0")
    serves = NodeServer(settings, RunDirectory(tmp_path), Tokens("t", "r"), told.append)
    how: dict[str, Any] = {"told": lambda _: None, "idle_s": 0.2}
    thread = threading.Thread(target=serves.run, kwargs=how, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert len(looks) > 4
    assert [said.rpartition(": ")[2] for said in told] == ["can't start new thread"]


def test_who_ends_beside_a_node_server_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How it has ended is told; one that ends at once each time is not started all the time."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/begun\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(beside, "_AGAIN_S", (0.0, 1000.0))
    told: list[str] = []
    one = beside._Companion("the watch", ["doctor"], os.environ, told.append)

    def ends() -> int:
        one.look()
        return one._ends

    wait_until(lambda: ends() == 2, "the second end")
    for _ in range(3):
        one.look()
    assert (tmp_path / "begun").read_text() == "\n\n"
    assert told == ["the watch has ended with exit code 3; it is started again"]
    assert one.process is None


def test_an_agent_stays_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time it attends once it is due; where a time does not end there is no second thread."""
    monkeypatch.setattr(announcing, "AGAIN_S", 0.0)
    agent = _agent(tmp_path / "shared")
    registering = announcing.announce(agent)
    assert registering is not None
    seen = [_registered_ns(tmp_path / "shared")]
    for _ in range(2):
        attend(agent, registering.look)
        _join(registering)  # while it is busy, nothing is begun anew
        seen.append(_registered_ns(tmp_path / "shared"))
    assert seen == sorted(set(seen)), "each time a later word"
    monkeypatch.setattr(announcing, "AGAIN_S", 600.0)
    attend(agent, registering.look)
    _join(registering)
    last = _registered_ns(tmp_path / "shared")
    attend(agent, registering.look)
    _join(registering)
    assert _registered_ns(tmp_path / "shared") == last, "it is not due"


def test_a_directory_that_does_not_answer_holds_up_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the agent's; one that cannot be written to is told of for as long."""
    monkeypatch.setattr(announcing, "AGAIN_S", 0.0)
    (tmp_path / "shared").write_text("no folder")
    agent = _agent(tmp_path / "shared")
    registering = announcing.announce(agent)
    assert registering is not None
    attend(agent, registering.look)
    _join(registering)
    assert [problem.partition(" in ")[0] for problem in agent.problems] == ["it is not registered"]
    (tmp_path / "shared").unlink()
    goes_on, began = threading.Event(), []

    def register_late(*given: Any) -> None:
        began.append(1)
        assert goes_on.wait(60)
        register(*given)

    monkeypatch.setattr(announcing, "register", register_late)
    for _ in range(3):
        attend(agent, registering.look)
    wait_until(lambda: began, "the thread")
    goes_on.set()
    _join(registering)
    assert began == [1]
    assert agent.problems == []


def _agent(job_dir: Path) -> Any:
    """What is asked of an agent on TCP."""
    card = SimpleNamespace(
        host="h", pid=os.getpid(), start_time=1, job="night", attempt=0, listen="h:1"
    )
    return SimpleNamespace(
        settings=SimpleNamespace(job_dir=str(job_dir), node=False),
        listen="h:1",
        card=lambda: card,
        refresh_card=lambda: None,
        keep_environment=lambda: None,
        problems=[],
    )


def _registered_ns(directory: Path) -> int:
    """When the one server in it was last heard of."""
    (path,) = directory.glob("*.probing.json")
    return int(json.loads(path.read_text())["registered_ns"])


def _join(registering: announcing.Registering) -> None:
    """Wait until nothing is being done."""
    if registering._thread is not None:
        registering._thread.join(DEADLINE_S)
        assert not registering._thread.is_alive()
