"""A process that writes what it likes into its run folder, or answers what it likes, harms nobody.

Every command about it, and every command that comes by it, ends in bounded time and memory with a
sentence, and the other processes are listed as ever.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from probing.cluster.registration import registrations
from probing.linux import process
from probing.linux.foreign_files import open_file, read_file, unzipped
from probing.rundir.folders import ProcessFolder, RunDirectory
from tests.harness.targets import DEADLINE_S, Target, clean_env, program_path, wait_until

pytestmark = pytest.mark.slow

PING_ONLY = b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"pid":1}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
MIB = 1 << 20
MOST_MIB = 900
"""What a command may hold; without a limit these need as much as there is."""
MOST_S = DEADLINE_S
"""How long a command may take on a busy machine; without a limit these take for ever."""
RECORD = (
    *("names", "steps.ring", "torch_trace.ring", "memory.ring", "stalls.ring", "evals.ring"),
    *("fatal.txt", "exception.json", "thread_exception.json", "held", "sock", "token"),
    *("profile.json.gz", "allocations.gz", "attach.py.failed", "exit_calls.json", "exit_code"),
    "terminated",
)
COUNT = "SELECT count(*) FROM python.steps"
HONEST = "import probing, time; probing.start(); print('ready', flush=True); time.sleep(900)"


def pipe(path: Path) -> None:
    """What nobody ever writes to."""
    os.mkfifo(path)


def endless(path: Path) -> None:
    """A link to what has no end."""
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    """A terabyte that takes no room."""
    path.touch()
    os.truncate(path, 1 << 40)


def folder(path: Path) -> None:
    """What is no file at all."""
    path.mkdir()


KINDS = (pipe, endless, sparse, folder)


@dataclass
class Done:
    """What came of a command."""

    code: int
    out: str
    err: str
    seconds: float
    mib: float


_MEASURED = """
import os, resource, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
status = os.waitpid(child, 0)[1]
most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
os.write(int(sys.argv[1]), b"%d %d" % (status, most))
"""
"""Runs a command and tells its status and its largest resident set in KiB.

The kernel counts what a process had before it became another program: whoever starts it has to be
small, and the tests' own process is not.
"""


@dataclass
class Scene:
    """An honest process with an agent, and a hostile one that has a run folder."""

    honest: Target
    hostile: Target
    folder: ProcessFolder
    card: dict[str, object]

    def clear(self, **changes: object) -> None:
        """Take all away but a card."""
        shutil.rmtree(self.folder.path)
        self.folder.path.mkdir(mode=0o700)
        (self.folder.path / "card.json").write_text(json.dumps({**self.card, **changes}))

    def run(self, *words: str) -> Done:
        """Run a command as a process of its own, within its limits."""
        argv = [sys.executable, "-m", "probing", *words]
        began = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            told, tells = os.pipe()
            command = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _MEASURED, str(tells), *argv],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd="/", env=self.honest.env,
                pass_fds=(tells,), start_new_session=True,
            )  # fmt: skip
            guard = threading.Timer(MOST_S, os.killpg, (command.pid, signal.SIGKILL))
            guard.start()
            command.wait()
            guard.cancel()
            seconds = time.monotonic() - began
            os.close(tells)
            with open(told, "rb") as figures:
                status, kib = map(int, figures.read().split() or (signal.SIGKILL, 0))
            for stream in (out, err):
                stream.seek(0)
            done = Done(
                code=os.waitstatus_to_exitcode(status),
                out=out.read().decode(),
                err=err.read().decode(),
                seconds=seconds,
                mib=kib / 1024,
            )
        assert done.code >= 0, f"{words}: killed after {seconds:.0f} s"
        assert "Traceback" not in done.err
        assert "internal error" not in done.err or "answer cannot be read" in done.err, done.err
        assert done.mib < MOST_MIB, (words, done.mib)
        return done

    def ask_everything(self) -> None:
        """Every kind of question: of all, of the hostile one, of a job that it is part of."""
        pid = str(self.hostile.pid)
        listed = self.run("list", "--format", "json").out
        assert self.honest.pid in [row["pid"] for row in json.loads(listed)]
        for words in (
            (pid, "status"),
            (pid, "backtrace"),
            (pid, "query", "--format=jsonl", "SELECT count(*) FROM python.steps"),
            (pid, "eval", "--timeout", "3", "1"),
        ):
            self.run(*words)
        counted = self.run(
            "-t", "all", "query", "--format=jsonl", "SELECT count(*) FROM python.steps"
        )
        assert "asked" in counted.err


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Both processes, for all tests of this file."""
    home = tmp_path_factory.mktemp("home", numbered=True)
    home.chmod(0o700)
    places = [tmp_path_factory.mktemp(name) for name in ("honest", "hostile")]
    honest = Target([sys.executable, "-c", HONEST], home, places[0])
    hostile = Target([sys.executable, str(program_path("idle"))], home / "none", places[1])
    try:
        honest.wait_for_agent()
        hostile.wait_for_output("ready")
        started = process.start_time(hostile.pid) or 0
        made = RunDirectory(home).create_folder(hostile.pid, started)
        card = json.loads((honest.folder.path / "card.json").read_bytes())
        card.pop("crc32")
        card.update(pid=hostile.pid, start_time=started)
        yield Scene(honest, hostile, made, card)
    finally:
        honest.reap()
        hostile.reap()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_hostile_card_costs_nobody_else_anything(
    scene: Scene, kind: Callable[[Path], None]
) -> None:
    """Where the card is no file, or has no end, the process is told as one without."""
    scene.clear()
    (scene.folder.path / "card.json").unlink()
    kind(scene.folder.path / "card.json")
    scene.ask_everything()
    assert "its card cannot be read" in scene.run("list").err


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_hostile_record_costs_nobody_else_anything(
    scene: Scene, kind: Callable[[Path], None]
) -> None:
    """The same of every other file of the folder, all at once, alive and in `oom`."""
    scene.clear()
    for name in RECORD:
        kind(scene.folder.path / name)
    scene.ask_everything()
    scene.run(str(scene.hostile.pid), "oom")
    scene.run(str(scene.hostile.pid), "tables")


def test_a_hostile_record_of_an_ended_process(scene: Scene) -> None:
    """What is read after the end, crash records and last rows, is read within limits too."""
    scene.clear()
    ended = RunDirectory(scene.folder.path.parent).create_folder(2**22 + 7, 5)
    try:
        (ended.path / "card.json").write_text(
            json.dumps({**scene.card, "pid": ended.pid, "start_time": 5})
        )
        for kind in KINDS:
            for name in RECORD:
                with contextlib.suppress(FileNotFoundError):
                    path = ended.path / name
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
                kind(ended.path / name)
            listed = json.loads(scene.run("list", "--dead", "--format", "json").out)
            assert {scene.honest.pid, ended.pid} <= {row["pid"] for row in listed}
            for words in (("backtrace",), ("oom",), ("memory", "--snapshot"), ("status",)):
                scene.run(str(ended.path), *words)
    finally:
        shutil.rmtree(ended.path)


@pytest.mark.parametrize(
    "changes",
    [
        {"world_size": 10**30},
        {"rank": 10**30, "local_rank": -5},
        {"started_ns": -(10**30), "attempt": 10**30},
        {"problems": ["y" * MIB] * 3, "command": ["\x1b[31m\n" * 1000, "x" * MIB]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_card_that_boasts_is_not_believed(scene: Scene, changes: dict[str, object]) -> None:
    """Numbers and texts beyond all measure take neither memory nor an answer from the others."""
    scene.clear(**changes)
    scene.ask_everything()
    scene.run("-t", "all", "hang")


def silent(caller: socket.socket) -> None:
    """Says nothing."""
    caller.recv(1)


def drip_head(caller: socket.socket) -> None:
    """A head that never ends, byte for byte."""
    for byte in itertools.cycle(b"HTTP/1.1 200 OK\r\nX: y\r\n"):
        caller.sendall(bytes([byte]))
        time.sleep(0.2)


def drip_body(caller: socket.socket) -> None:
    """A body that never ends, byte for byte."""
    caller.sendall(HEAD)
    while True:
        caller.sendall(b" ")
        time.sleep(0.2)


def flood(caller: socket.socket) -> None:
    """A body that never ends, as fast as it goes."""
    caller.sendall(HEAD)
    while True:
        caller.sendall(b" " * MIB)


def flood_chunked(caller: socket.socket) -> None:
    """The same in chunks."""
    caller.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        caller.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")


def flood_heads(caller: socket.socket) -> None:
    """One interim head behind the other."""
    while True:
        caller.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def boast_length(caller: socket.socket) -> None:
    """A length that no machine has room for, and nothing behind it."""
    caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\nabc")


def boast_chunk(caller: socket.socket) -> None:
    """The same of a chunk."""
    caller.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffff\r\nabc")


def nested(caller: socket.socket) -> None:
    """JSON deeper than any parser goes."""
    body = b"[" * (16 * MIB)
    caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


SERVERS = (
    silent,
    drip_head,
    drip_body,
    flood,
    flood_chunked,
    flood_heads,
    boast_length,
    boast_chunk,
    nested,
)


@contextlib.contextmanager
def serving(path: Path, answer: Callable[[socket.socket], None], *, pongs: bool) -> Iterator[None]:
    """Somebody who answers as he likes at a socket; to a ping, if so told, as an agent does."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(64)

        def talk(caller: socket.socket) -> None:
            with caller, contextlib.suppress(OSError):
                asked = caller.recv(65536)
                if pongs and b"/v1/ping" in asked:
                    caller.sendall(PING_ONLY)
                else:
                    answer(caller)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = listening.accept()
                    threading.Thread(target=talk, args=(caller,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("answer", "pongs"),
    [
        *((answer, False) for answer in SERVERS),
        *((answer, True) for answer in (drip_body, flood, boast_chunk, nested)),
    ],
    ids=lambda value: (
        value.__name__ if callable(value) else ("after a pong" if value else "always")
    ),
)
def test_a_hostile_answer_costs_nobody_else_anything(
    scene: Scene, answer: Callable[[socket.socket], None], *, pongs: bool
) -> None:
    """Slow, endless and boastful answers are given up; stacks come from outside instead."""
    scene.clear()
    with serving(scene.folder.socket, answer, pongs=pongs):
        pid = str(scene.hostile.pid)
        listed = json.loads(scene.run("list", "--format", "json").out)
        assert {scene.honest.pid, scene.hostile.pid} <= {row["pid"] for row in listed}
        trace = scene.run(pid, "backtrace")
        assert trace.code == 0
        assert "read from outside" in trace.err
        assert "sleeper" in trace.out
        refused = scene.run(pid, "eval", "--timeout", "3", "1")
        assert refused.code != 0
        assert refused.err.startswith("error: ")
        if not pongs:  # an agent that is there may be as slow as it likes with what `status` asks
            scene.run(pid, "status")


def test_a_link_in_the_place_of_the_socket_is_not_asked(scene: Scene) -> None:
    """Code that is meant for a process goes to no other who listens where a link leads."""
    if os.getuid() != 0:
        pytest.skip("only root can lay a link as somebody else")
    scene.clear()
    link = scene.folder.socket
    link.symlink_to(scene.honest.folder.socket)
    os.lchown(link, 65534, 65534)
    done = scene.run(str(scene.hostile.pid), "eval", "1 + 1")
    assert done.code != 0
    assert done.out == ""


def test_a_node_server_lives_by_hostile_processes(scene: Scene, tmp_path: Path) -> None:
    """It answers for the honest one in time, and holds no more memory than before."""
    scene.clear()
    for name in ("names", "steps.ring", "held", "fatal.txt"):
        sparse(scene.folder.path / name)
    log = tmp_path / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"],
            env=clean_env(scene.honest.home),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        card = scene.honest.home / "node.json"
        wait_until(lambda: card.exists() and card.read_bytes(), "a node server")
        where = "http://" + json.loads(card.read_bytes())["listen"]
        words = ("-t", where, "--timeout", f"{MOST_S / 2:g}")
        for answer in (flood, drip_body, boast_length):
            scene.folder.socket.unlink(missing_ok=True)
            with serving(scene.folder.socket, answer, pongs=True):
                done = scene.run(*words, "query", "--format=jsonl", COUNT)
                asked = scene.run(*words, "backtrace")
                assert "asked 2 processes: 1 answered" in done.err, done
                assert str(scene.honest.pid) in asked.out + asked.err, asked
        status = dict(
            line.split(":\t")
            for line in Path(f"/proc/{server.pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert int(status["VmHWM"].split()[0]) / 1024 < MOST_MIB
        assert server.poll() is None
    finally:
        server.terminate()
        server.wait(MOST_S)


def test_the_reader_takes_files_and_nothing_else(tmp_path: Path) -> None:
    """Pipes, links, folders and what is too long are errors of the system; a file is read whole."""
    for kind in KINDS:
        path = tmp_path / kind.__name__
        kind(path)
        with pytest.raises(OSError, match=r"regular file|more than"):
            read_file(path, 1000)
    (tmp_path / "file").write_bytes(b"abc")
    assert read_file(tmp_path / "file", 3) == b"abc"
    with pytest.raises(OSError, match="more than 2 bytes"):
        read_file(tmp_path / "file", 2)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="regular file"):
        open_file(tmp_path / "link")
    assert read_file(tmp_path / "link", 3, follow_links=True) == b"abc"
    assert read_file("/proc/self/status", 3) == b"", "what has no length has no end"


def test_hostile_entries_of_a_job_directory_are_passed_over(tmp_path: Path) -> None:
    """Who looks for the servers of a job waits at no pipe that lies among their addresses."""
    for kind in KINDS:
        kind(tmp_path / f"{kind.__name__}.probing.json")
    assert registrations(tmp_path).entries == []


def test_what_unpacks_to_more_than_it_may_is_refused() -> None:
    """A few bytes that stand for very many are not unpacked further than to the limit."""
    import gzip

    packed = gzip.compress(b"x" * MIB)
    assert unzipped(packed, MIB) == b"x" * MIB
    with pytest.raises(OSError, match="more than"):
        unzipped(packed, MIB - 1)
