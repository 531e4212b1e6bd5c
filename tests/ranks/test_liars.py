"""Who is named by a directory, a store or a name service, and lies: he gets no token and no say."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.cluster.job.members import find_members
from probing.cluster.job.plans import plan_of
from probing.cluster.registration import Registration, register, registrations
from probing.errors import NotAnswering, ProbingError, Unproven, Unreachable
from probing.linux import process
from probing.messages import common as wire
from probing.messages.about import job as job_wire
from probing.reach.address import Address
from probing.reach.transport import ask
from tests.harness.targets import (
    DEADLINE_S,
    Target,
    clean_env,
    run_command,
    start_program,
)

pytestmark = pytest.mark.anypython

TOKEN = "of-the-whole-job"
PATIENCE_S = DEADLINE_S
PLAIN = "PROBING_INSECURE_PLAINTEXT"

Serve = Callable[[socket.socket], None]


class Liar:
    """A listener of this machine that keeps every byte that it is sent.

    Attributes:
        heard: What it was sent, a piece for each connection.
        port: Where it listens.
    """

    def __init__(self, serve: Serve, host: str = "127.0.0.1") -> None:
        self._server = socket.create_server((host, 0))
        self._serve = serve
        self.heard: list[bytes] = []
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        self._server.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            data = connection.recv(1 << 16)
            if data:
                self.heard.append(data)
                self._serve(connection)


@pytest.fixture
def lies() -> Iterator[Callable[..., Liar]]:
    """Makes listeners that answer as they are told."""
    made: list[Liar] = []

    def make(serve: Serve = lambda _: None, host: str = "127.0.0.1") -> Liar:
        made.append(Liar(serve, host))
        return made[-1]

    yield make
    for liar in made:
        liar.close()


def answering(body: bytes) -> Serve:
    """One HTTP answer, whatever was asked."""
    head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return lambda connection: connection.sendall(head.encode() + body)


def slowly(connection: socket.socket) -> None:
    """An answer that goes on for ever, a byte at a time, each well within any time limit."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


def members(*entries: job_wire.NodeMember) -> bytes:
    """What a node server says of its processes."""
    answer = job_wire.MembersAnswer(host="there", pid=1, version="0", members=entries)
    return wire.encode(answer)


ENTRY = job_wire.NodeMember(
    key="7-7", rank=0, local_rank=0, world_size=2, job="night", attempt=0, pid=7, host="there",
    started_ns=2**62, is_alive=True, state="training", step=999_999,
)  # fmt: skip


def entry_of(listen: str) -> Registration:
    """Word of a server of another machine."""
    return Registration(
        kind="node", listen=listen, host="there", pid=1, start_time=1, boot_id="another",
        pid_namespace=1, registered_ns=time.time_ns(),
    )  # fmt: skip


def listed(folder: Path, listen: str) -> Path:
    """A directory of servers that names one."""
    register(folder / "shared", entry_of(listen))
    return folder / "shared"


@pytest.mark.parametrize("scheme", ["", "http://", "https://"])
def test_who_was_only_named_gets_no_token(
    lies: Callable[..., Liar], tmp_path: Path, scheme: str
) -> None:
    """An address from the directory is not asked where no certificate will prove who it is."""
    liar = lies()
    shared = listed(tmp_path, f"{scheme}127.0.0.1:{liar.port}")
    env = clean_env(tmp_path / "home", PROBING_JOB_DIR=str(shared), PROBING_TOKEN=TOKEN)
    done = run_command("-t", "all", "list", "--job", cwd=tmp_path, env=env)
    assert liar.heard == []
    assert f"127.0.0.1:{liar.port} was not asked: others named it" in done.stderr
    assert done.returncode == 4


def test_an_entry_does_not_switch_encryption_off(
    lies: Callable[..., Liar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where certificates were named an entry with http:// is not asked, whatever else is set."""
    liar = lies()
    shared = listed(tmp_path, f"http://127.0.0.1:{liar.port}")
    for name, value in (
        ("PROBING_TLS_FINGERPRINT", "0" * 64), (PLAIN, "1"), ("PROBING_JOB_DIR", str(shared)),
        ("PROBING_HOME", str(tmp_path / "home")),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    with pytest.raises(Unproven, match="want it to be asked unencrypted"):
        find_members(["all"], token=TOKEN)
    assert liar.heard == []


def test_the_explicit_word_asks_them_all(
    lies: Callable[..., Liar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROBING_INSECURE_PLAINTEXT=1 sends the token to who is named, as a job without TLS needs."""
    server = lies(answering(members(ENTRY)))
    shared = listed(tmp_path, f"127.0.0.1:{server.port}")
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PROBING_JOB_DIR", str(shared))
    monkeypatch.setenv(PLAIN, "1")
    (found,) = find_members(["job:night"], token=TOKEN).seen
    assert (found.rank, found.step, found.is_proven) == (0, 999_999, False)
    assert TOKEN.encode() in server.heard[0]


def test_a_name_service_gets_no_token(lies: Callable[..., Liar], tmp_path: Path) -> None:
    """What a name stands for is not asked unproven, be it an address of this very machine."""
    liar = lies()
    env = clean_env(tmp_path / "home", PROBING_TOKEN=TOKEN)
    done = run_command(
        "-t", f"k8s:localhost:{liar.port}", "list", "--job", cwd=tmp_path, env=env
    )  # fmt: skip
    assert (done.returncode, liar.heard) == (4, [])
    assert "no certificate proves who it is" in done.stderr


@pytest.mark.parametrize(
    ("number", "is_near"),
    [
        ("127.0.0.1", True), ("127.3.2.1", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("0.0.0.0", True), ("::", True), ("10.0.0.7", False), ("::ffff:10.0.0.7", False),
        ("fe80::1%eth0", False), ("192.0.2.1", False),
    ],
)  # fmt: skip
def test_a_token_crosses_no_network_unencrypted(number: str, *, is_near: bool) -> None:
    """Who is at the other end is judged by its number, and is this machine or gets no token."""
    address = Address(host="named.by.the.user", port=1, token=TOKEN)
    judged = contextlib.nullcontext() if is_near else pytest.raises(Unproven, match="unencrypted")
    with judged:
        address.check_peer(number)
    Address(host="x", port=1).check_peer(number)
    dataclasses.replace(address, tls=True).check_peer(number)
    said = address.trust._replace(plaintext=True)
    dataclasses.replace(address, trust=said).check_peer(number)


def fifo(entry: Path) -> None:
    """Put what never ends in the place of an entry."""
    entry.unlink()
    os.mkfifo(entry, 0o600)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda entry: entry.parent.chmod(0o777), "others can write to it"),
        (lambda entry: entry.parent.chmod(0o770), "others can write to it"),
        (lambda entry: os.chown(entry.parent, 4321, 4321), "another user .uid 4321"),
        (lambda entry: entry.chmod(0o666), "others can write to it"),
        (lambda entry: os.chown(entry, 4321, 4321), "another user .uid 4321"),
        (fifo, "is no file"),
        (lambda entry: (entry.unlink(), entry.symlink_to("/etc/passwd")), "is no file"),
    ],
)  # fmt: skip
def test_what_others_could_have_written_is_refused(
    tmp_path: Path, spoil: Callable[[Path], Any], why: str
) -> None:
    """An entry or a directory of somebody else, and what is no file, is left out in a sentence."""
    entry = register(tmp_path / "shared", entry_of("a:1"))
    assert registrations(tmp_path / "shared").entries
    try:
        spoil(entry)
    except PermissionError:  # only root gives files away; it is root's that others believe
        assert os.geteuid() != 0
        return
    found = registrations(tmp_path / "shared")
    assert found.entries == []
    (note,) = found.notes
    assert re.search(why, note)
    assert plan_of("all", {"PROBING_JOB_DIR": str(entry.parent)}).notes == (note,)


def test_a_directory_in_which_each_has_his_own_is_read(tmp_path: Path) -> None:
    """Where the sticky bit keeps others from what is ours, our entries count."""
    register(tmp_path / "shared", entry_of("a:1"))
    (tmp_path / "shared").chmod(0o1777)
    assert [entry.listen for entry in registrations(tmp_path / "shared").entries] == ["a:1"]


def test_word_is_left_where_nobody_else_writes(tmp_path: Path) -> None:
    """A directory that registering makes is its user's alone, and no link there is followed."""
    old = os.umask(0)
    try:
        path = register(tmp_path / "shared", entry_of("a:1"))
    finally:
        os.umask(old)
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (path.parent / f".{path.name}.new").symlink_to(victim)
    register(tmp_path / "shared", entry_of("b:1"))
    assert victim.read_text() == "mine"
    assert [entry.listen for entry in registrations(tmp_path / "shared").entries] == ["b:1"]


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Target]:
    """A live rank of this machine."""
    target = start_program(
        "idle", home=tmp_path / "home", cwd=tmp_path, PROBING="all", RANK="0", WORLD_SIZE="2",
        TORCHELASTIC_RUN_ID="night",
    )  # fmt: skip
    target.wait_for_agent()
    yield target
    target.reap()


def test_a_liar_does_not_take_the_place_of_a_live_rank(
    rank: Target, lies: Callable[..., Liar], tmp_path: Path
) -> None:
    """What runs here stays, whatever an unproven server says of ranks, attempts and sizes."""
    claims = [dataclasses.replace(ENTRY, pid=6 + n, attempt=n) for n in (0, 7)]
    claims.append(dataclasses.replace(ENTRY, pid=8, rank=1, attempt=7, world_size=1000))
    liar = lies(answering(members(*claims)))
    shared = listed(tmp_path, f"127.0.0.1:{liar.port}")
    done = rank.run(
        "list", "--job", "night", "--format", "json",
        PROBING_JOB_DIR=str(shared), PROBING_TOKEN=TOKEN, PROBING_INSECURE_PLAINTEXT="1",
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert liar.heard
    seen = [m["pid"] for m in found["members"] if m["state"] == "seen"]
    assert (seen, found["world_size"]) == ([rank.pid], 2)
    assert f"127.0.0.1:{liar.port} is not believed: it tells otherwise of ranks 0-1" in done.stderr


@pytest.mark.parametrize("claim", [{"world_size": 10_000_000}, {"rank": 10_000_000}, {"rank": -9}])
def test_a_job_that_is_none_is_not_believed(
    lies: Callable[..., Liar], claim: dict[str, int], tmp_path: Path
) -> None:
    """Ten million ranks, none of which is there, are an error in a sentence, and soon."""
    liar = lies(answering(members(dataclasses.replace(ENTRY, **claim))))  # type: ignore[arg-type]
    env = clean_env(tmp_path / "home", PROBING_TOKEN=TOKEN)
    done = run_command("-t", f"127.0.0.1:{liar.port}", "list", "--job", cwd=tmp_path, env=env)
    assert done.returncode == 3
    assert "it tells of a job of more than 262,144 ranks" in done.stderr


def test_a_large_job_of_which_little_is_there_has_few_lines(
    lies: Callable[..., Liar], tmp_path: Path
) -> None:
    """Two ranks of a quarter of a million are shown at once: the others as neighbours."""
    one = dataclasses.replace(ENTRY, world_size=262_144)
    other = dataclasses.replace(one, key="8-8", pid=8, rank=200_000)
    shared = listed(tmp_path, f"127.0.0.1:{lies(answering(members(one, other))).port}")
    env = clean_env(tmp_path / "home", PROBING_TOKEN=TOKEN, PROBING_JOB_DIR=str(shared))
    done = run_command("list", "--job", cwd=tmp_path, env={**env, PLAIN: "1"})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) < 1100
    assert lines[0] == "job night: 2 of 262144 ranks seen"
    assert lines[-1].split()[0] == "200001-262143"


@pytest.mark.parametrize("style", ["table", "json"])
def test_a_lie_does_not_drive_the_terminal(
    lies: Callable[..., Liar], tmp_path: Path, style: str
) -> None:
    """Control characters in a state, host and job are written out, of eight bits, too."""
    evil = "\x1b]0;owned\x07\x9b2J"
    entry = dataclasses.replace(ENTRY, state=f"s{evil}", host=f"h{evil}", job=f"j{evil}")
    liar = lies(answering(members(entry)))
    env = clean_env(tmp_path / "home", PROBING_TOKEN=TOKEN)
    done = run_command(
        "-t", f"127.0.0.1:{liar.port}", "list", "--job", "--format", style, cwd=tmp_path, env=env
    )
    assert done.returncode == 0, done.stderr
    assert not {"\x1b", "\x07", "\x9b"} & set(done.stdout + done.stderr)
    if style == "json":
        assert json.loads(done.stdout)["members"][0]["state_word"] == f"s{evil}"


def test_the_time_limit_is_that_of_the_whole_answer(lies: Callable[..., Liar]) -> None:
    """A body that comes a byte at a time ends with the limit, not with its last byte."""
    address = Address(host="127.0.0.1", port=lies(slowly).port)
    begun = time.monotonic()
    with pytest.raises(NotAnswering):
        ask(address, "status", timeout_s=0.5)
    assert time.monotonic() - begun < 10
    begun = time.monotonic()
    with pytest.raises(ProbingError):
        probing.connect(f"127.0.0.1:{lies(slowly).port}", timeout_s=0.5).status()
    assert time.monotonic() - begun < 10


def lying_store(count: int, address: bytes) -> Serve:
    """A store of torch's in which so many are registered."""
    answers = {"/probing/attempt": b"0", "/probing/0/nodes": str(count).encode()}

    def exactly(connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = connection.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    def serve(connection: socket.socket) -> None:
        connection.sendall(struct.pack("<I", 0x0B0E))
        while True:
            kind = exactly(connection, 1)[0]
            if kind == 5:
                exactly(connection, 8)
            key = exactly(connection, struct.unpack("<Q", exactly(connection, 8))[0]).decode()
            value = answers.get(key, address)
            size = struct.pack("<Q", len(value))
            connection.sendall(b"\0" if kind == 5 else size + value)
            if key not in answers:
                time.sleep(0.05)

    return serve


def test_a_store_of_very_many_is_not_waited_for(lies: Callable[..., Liar], tmp_path: Path) -> None:
    """One that names 65,536 servers slowly has the time limit of the command for all of them."""
    store = lies(lying_store(65_536, b"127.0.0.1:1"))
    env = clean_env(tmp_path / "home", PROBING_TOKEN=TOKEN)
    begun = time.monotonic()
    done = run_command(
        "-t", f"store:127.0.0.1:{store.port}", "--timeout", "1", "list", "--job", cwd=tmp_path,
        env=env, timeout_s=PATIENCE_S,
    )  # fmt: skip
    assert time.monotonic() - begun < PATIENCE_S
    assert done.returncode == 3
    assert "it did not answer in time" in done.stderr


def test_a_store_names_addresses_and_nothing_else(
    lies: Callable[..., Liar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path, a pid and a file of hosts that a store names are left out, and say so."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path))
    for word in (b"/tmp/evil.sock", b"4242", b"@/etc/hosts", b"all", b"a\x1b[31m:1"):
        store = lies(lying_store(1, word))
        plan = plan_of(f"store:127.0.0.1:{store.port}", {}, timeout_s=PATIENCE_S)
        assert plan.told == ()
        assert "is left out: it is no address" in plan.notes[0]
    store = lies(lying_store(1, b"127.0.0.1:1"))
    with pytest.raises(Unproven):
        find_members([f"store:127.0.0.1:{store.port}"], token=TOKEN)
    with pytest.raises(Unreachable):
        plan_of("store:127.0.0.1:1", {})


def test_one_of_this_machine_is_asked_without_more(tmp_path: Path) -> None:
    """An entry of one's own for a process that runs here is as good as named by the user."""
    pid = os.getpid()
    own = dataclasses.replace(
        entry_of("127.0.0.1:9"), pid=pid, start_time=process.start_time(pid) or 0,
        boot_id=process.boot_id(), pid_namespace=process.pid_namespace(),
    )  # fmt: skip
    register(tmp_path / "shared", own)
    plan = plan_of("all", {"PROBING_JOB_DIR": str(tmp_path / "shared")})
    assert (plan.addresses, plan.told, plan.notes) == (("127.0.0.1:9",), (), ())
