"""A job of several processes, and the node server that answers for them in every state."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.client.connecting import connect
from probing.cluster.job.members import find_members
from probing.cluster.job.outcomes import Coverage, ask_all
from probing.errors import ProbingError
from probing.linux import process
from probing.messages import common as wire
from probing.rundir.folders import RunDirectory
from probing.rundir.node_card import read_node
from probing.stacks.work_done import children_of
from tests.harness.targets import (
    DEADLINE_S,
    Target,
    clean_env,
    program_path,
    start_program,
    stop,
    wait_until,
)

pytestmark = pytest.mark.anypython

WORLD = 5
RUNS, STOPPED, KILLED, OTHER, ABSENT = range(WORLD)


class Job:
    """Ranks without torch, one stopped, one killed and one that never came; and a node server.

    Attributes:
        ranks: By rank; there is none for `ABSENT`.
        address: Where the node server listens.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.ranks: list[Target] = []
        self.node: Target | None = None
        for rank in range(WORLD - 1):
            cwd = folder / f"rank{rank}"
            cwd.mkdir()
            env = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "TORCHELASTIC_RUN_ID": "night"}
            self.ranks.append(start_program("idle", home=self.home, cwd=cwd, PROBING="all", **env))

    def begin(self, folder: Path) -> None:
        """Wait until all are there, start the node server, and bring them into their states."""
        for target in self.ranks:
            target.wait_for_server()
        argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0", "--allow-eval"]
        self.node = Target(argv, self.home, folder)
        self.node.wait_for_output("listening on")
        stop(self.ranks[STOPPED].pid)
        self.ranks[KILLED].kill()

    @property
    def address(self) -> str:
        """Where the node server listens."""
        assert self.node is not None
        found = re.search(r"listening on (\S+);", self.node.output)
        assert found is not None
        return found[1]

    def run(self, *args: str, token: str = "") -> subprocess.CompletedProcess[str]:
        """A probing command that finds the job."""
        return self.ranks[RUNS].run(*args, PROBING_TOKEN=token)

    def reap(self) -> None:
        """End all of it."""
        for target in (*self.ranks, *([self.node] if self.node else [])):
            with contextlib.suppress(ProcessLookupError):
                os.kill(target.pid, signal.SIGCONT)
            target.reap()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job of which ranks run, are stopped, were killed and are missing."""
    folder = tmp_path_factory.mktemp("job")
    started = Job(folder)
    try:
        started.begin(folder)
        yield started
    finally:
        started.reap()


@pytest.fixture
def here(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """The same, found by this very process, too."""
    monkeypatch.setenv("PROBING_HOME", str(job.home))
    return job


def test_every_expected_rank_is_a_row(job: Job) -> None:
    """`list --job` has a line for each rank of the job, in whatever state, and exits with 0."""
    done = job.run("list", "--job", "night")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "job night: 4 of 5 ranks seen"
    states = {int(words[0]): line for line in lines[3:] if (words := line.split())}
    for rank, state in ((RUNS, "idle"), (STOPPED, "stopped"), (KILLED, "dead"), (OTHER, "idle")):
        assert f"{job.ranks[rank].pid}  {state}" in states[rank]
    assert "missing" in states[ABSENT]
    assert f"note: rank {ABSENT} not seen" in done.stderr
    shown = json.loads(job.run("list", "--job", "--format", "json").stdout)
    assert [m["rank"] for m in shown["members"] if m["state"] == "missing"] == [ABSENT]


def test_the_node_server_stands_for_its_ranks(job: Job) -> None:
    """-t host:port of a node server asks all of its processes, under the names of their ranks."""
    done = job.run("-t", job.address, "eval", "print(6 * 7)", "--timeout", "20")
    assert done.stdout == f"ranks 0,{OTHER}:  42\n"
    assert f"rank {KILLED}: process {job.ranks[KILLED].pid} has ended" in done.stderr
    assert "is stopped by a signal" in done.stderr
    assert re.search(r"asked 4 ranks: 2 answered, rank 1 late \(.* s\), rank 2 dead", done.stderr)


def test_all_ranks_of_this_machine(job: Job) -> None:
    """`-t all` asks them without any server; the missing one is told in the footer."""
    done = job.run("-t", "all", "tables")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("== rank") == 4
    expected = "asked 4 of 5 ranks: 4 answered (rank 2 from its record), rank 4 not seen"
    assert expected in done.stderr


def test_what_needs_no_help_is_answered_in_every_state(here: Job) -> None:
    """Of a stopped and a dead rank SQL is answered, and of a stopped one the stacks."""
    membership = find_members([here.address])
    assert [m.rank for m in membership.members] == [RUNS, STOPPED, KILLED, OTHER]
    assert {m.via for m in membership.members} == {here.address}
    rows = ask_all(
        membership.members,
        lambda process, _: process.query("SELECT count(*) AS n FROM probing.overhead").to_pylist(),
        timeout_s=60,
    )
    assert [outcome.value or outcome.error for outcome in rows] == [[{"n": 0}]] * 4
    stacks = ask_all(
        membership.members, lambda process, _: process.backtrace().source, timeout_s=60
    )
    assert [o.state for o in stacks] == ["answered", "answered", "dead", "answered"]
    assert stacks[RUNS].value == "agent"
    assert stacks[STOPPED].value in {"py-spy", "proc"}
    assert Coverage.of(stacks).words() == "asked 4 ranks: 3 answered, rank 2 dead"


def test_both_ways_to_a_process_are_one(here: Job) -> None:
    """Asked for here and through the node server, each rank is there once, by its own files."""
    membership = find_members(["all", here.address])
    assert len(membership.seen) == WORLD - 1
    assert [m.rank for m in membership.members if m.state == "missing"] == [ABSENT]
    assert {m.via for m in membership.seen} == {None}
    assert membership.job == "night"
    assert membership.world_size == WORLD


def test_some_ranks_by_their_numbers(here: Job) -> None:
    """A range asks for those ranks and misses those that are not there, no others."""
    membership = find_members(["rank:3-4"])
    assert [(m.rank, m.state) for m in membership.members] == [(OTHER, "seen"), (ABSENT, "missing")]


def test_a_dead_address_is_a_row(here: Job, tmp_path: Path) -> None:
    """Of two hosts in a file one does not answer: it is a missing member, told in a sentence."""
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{here.address}\n127.0.0.1:1\n")
    membership = find_members([f"@{hosts}"])
    assert len(membership.seen) == WORLD - 1
    assert [m.endpoint for m in membership.members if m.state == "missing" and m.rank is None] == [
        "127.0.0.1:1"
    ]
    assert any("127.0.0.1:1: " in note and "refused" in note for note in membership.notes)


def send(address: str, path: str, **headers: str) -> tuple[int, bytes]:
    """One raw request."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=DEADLINE_S)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_who_may_not_ask(job: Job) -> None:
    """No token, a wrong one, a foreign Host and any Origin are refused, as by an agent."""
    token = (job.home / "node.token").read_text()
    right = {"Authorization": f"Bearer {token}"}
    assert send(job.address, "/v1/members", **right)[0] == 200
    for headers, code in (
        ({}, "bad_token"),
        ({"Authorization": "Bearer no"}, "bad_token"),
        ({**right, "Host": "evil.example:1"}, "bad_host"),
        ({**right, "Origin": "http://evil.example"}, "bad_origin"),
    ):
        for path in ("/v1/members", f"/v1/ranks/{job.ranks[RUNS].folder.path.name}/status"):
            status, body = send(job.address, path, **headers)
            assert status in {401, 403, 421}
            assert wire.decode_error(body).code == code
    assert os.stat(job.home / "node.token").st_mode & 0o777 == 0o600
    done = job.run("-t", job.address, "status", token="wrong")
    assert done.returncode == 4
    assert done.stdout == ""


@pytest.mark.parametrize("path", ["members?states=yes", "ranks/{key}/backtrace?locals=yes"])
def test_parameters_are_read_as_by_an_agent(path: str, job: Job) -> None:
    """What is neither true nor false is refused, and not taken for one of them."""
    token = (job.home / "node.token").read_text()
    key = job.ranks[RUNS].folder.path.name
    status, body = send(job.address, f"/v1/{path.format(key=key)}", Authorization=f"Bearer {token}")
    assert (status, wire.decode_error(body).code) == (400, "bad_request")


@pytest.mark.parametrize("key", ["1-1", "..", "%2e%2e", "4242", "nothing"])
def test_no_such_process(job: Job, key: str) -> None:
    """A name that is no run folder is refused with an error body, and reads no other file."""
    token = (job.home / "node.token").read_text()
    headers = {"Authorization": f"Bearer {token}"}
    status, body = send(job.address, f"/v1/ranks/{key}/status", **headers)
    assert status == 404
    assert wire.decode_error(body).code in {"no_such_process", "no_such_route"}


def test_a_process_behind_it_is_asked_as_any_other(here: Job) -> None:
    """`connect` to a process of a node server's gives its card, settings and live tables."""
    member = find_members([here.address]).members[RUNS]
    process = connect(member.endpoint, timeout_s=60)
    assert process.status().pid == here.ranks[RUNS].pid
    assert {setting.name for setting in process.settings().settings} >= {"recording", "node"}
    assert process.live("threads").rows
    with pytest.raises(ProbingError) as caught:
        process.query("SELECT nothing")
    assert caught.value.code == "sql"


def test_there_is_one_for_each_run_directory(job: Job) -> None:
    """A second node server says in one sentence who is there already."""
    done = job.run("serve", "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert done.stderr.startswith("error: a node server of ")
    assert f"at {job.address}) already" in done.stderr or "runs already" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_that_has_gone_is_said_in_a_sentence(tmp_path: Path) -> None:
    """A node server that is stopped lets go of its place; its address is then refused in words."""
    argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"]
    node = Target(argv, tmp_path / "home", tmp_path)
    try:
        node.wait_for_output("listening on")
        card = read_node(RunDirectory(tmp_path / "home"))
        assert card is not None
        assert node.kill(signal.SIGTERM) == 0
        assert read_node(RunDirectory(tmp_path / "home")) is None
        done = node.run("-t", card.listen, "backtrace")
        assert done.returncode == 3
        assert "the connection was refused" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        node.reap()


def test_the_first_agent_starts_one(tmp_path: Path) -> None:
    """PROBING_NODE=1 starts it beside the job, registered, and it ends after the last process."""
    home, shared = tmp_path / "home", tmp_path / "shared"
    env = clean_env(
        home,
        PROBING="all",
        PROBING_NODE="1",
        PROBING_NODE_LISTEN="127.0.0.1:0",
        PROBING_NODE_IDLE_S="0.5",
        PROBING_JOB_DIR=str(shared),
        RANK="0",
        WORLD_SIZE="1",
    )
    argv = [sys.executable, "-m", "probing._run", str(program_path("idle"))]
    with subprocess.Popen(argv, env=env, cwd=tmp_path) as job:
        try:
            card = wait_until(lambda: read_node(RunDirectory(home)), "a node server")
            facts = process.facts(card.pid)
            assert facts is not None
            assert facts.parent != job.pid
            assert os.getsid(card.pid) != os.getsid(job.pid)
            wait_until(lambda: list(shared.glob("*.json")), "its registration")
        finally:
            job.kill()
    wait_until(lambda: not process.is_alive(card.pid, card.start_time), "its end")
    assert list(shared.glob("*.json")) == []


def test_a_watch_that_is_killed_is_started_again(tmp_path: Path) -> None:
    """It is told how it has ended; the next one ends with the server, too, whatever ends that."""
    argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"]
    node = Target(argv, tmp_path / "home", tmp_path, PROBING_WATCH="http://127.0.0.1:1/hook")
    try:
        node.wait_for_output("listening on")
        (first,) = wait_until(lambda: children_of(node.pid), "the watch")
        os.kill(first, signal.SIGKILL)
        told = "the watch (doctor --watch) has ended with signal SIGKILL; it is started again"
        node.wait_for_output(told)
        (second,) = wait_until(lambda: set(children_of(node.pid)) - {first}, "another watch")
        words = Path(f"/proc/{second}/cmdline")
        wait_until(lambda: b"parent_death" not in words.read_bytes(), "the program itself")
        node.kill()
        wait_until(lambda: process.state(second) in {None, "Z"}, "its end")
        assert node.output.count("the watch") == 1
    finally:
        node.reap()
