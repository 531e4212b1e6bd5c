"""What floods of connections, of requests and of odd bytes come to: something has a limit."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from probing.errors import RemoteError
from probing.messages import common as wire
from probing.reach.address import Address
from probing.reach.transport import ask
from probing.rundir.folders import short_path
from probing.server.access.rates import Rates
from probing.settings import Settings
from probing.sql.answer import Answer
from probing.stacks.work_done import children_of
from tests.faults import Reached
from tests.harness.targets import DEADLINE_S, Target, clean_env, start_program, wait_until
from tests.serving.malformed import malformed_requests

pytestmark = pytest.mark.anypython

STUCK = -1
HALF_HEADER = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n"
HALF_BODY = (
    b"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)
LARGE = "SELECT repeat('x', 1000) AS text FROM range(70000)"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
STATUS = re.compile(rb"HTTP/1\.[01] (\d\d\d) ")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A process that may have few files, with an agent that loses patience early."""
    cwd = tmp_path_factory.mktemp("bounded")
    started = start_program(
        "few_files",
        home=cwd / "home",
        cwd=cwd,
        PROBING="all",
        PROBING_HEADER_TIMEOUT_S="1",
        PROBING_BODY_TIMEOUT_S="1",
        PROBING_SEND_TIMEOUT_S="2",
        PROBING_MAX_REQUESTS_PER_S="1000000",
        PROBING_QUERY_TIMEOUT_S=f"{DEADLINE_S:g}",
    )
    started.wait_for_output("ready")
    started.wait_for_agent()
    wait_until(lambda: is_served(started), "an answer")
    yield started
    started.reap()


@pytest.fixture(autouse=True)
def unharmed(target: Target) -> Iterator[None]:
    """Whatever was tried: it has said no more than it says by itself, and is served at once."""
    yield
    assert set(target.output.splitlines()) <= {"ready", "opened a file while flooded"}
    assert target.process.poll() is None
    assert is_served(target)


@pytest.fixture
def flood() -> Iterator[list[socket.socket]]:
    """Connections that are closed in the end."""
    connections: list[socket.socket] = []
    yield connections
    for connection in connections:
        connection.close()


def address_of(target: Target) -> Address:
    """Its unix socket."""
    return Address(path=target.folder.socket)


def is_served(target: Target) -> bool:
    """Whether an honest client gets its answer."""
    return (
        wire.decode(wire.Card, ask(address_of(target), "status", timeout_s=DEADLINE_S)).pid
        == target.pid
    )


def served_in_s(target: Target) -> float:
    """How long an honest client waits for its answer."""
    started = time.monotonic()
    assert is_served(target)
    return time.monotonic() - started


def connect(target: Target) -> socket.socket:
    """A connection to it that has said nothing."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(DEADLINE_S)
    with short_path(target.folder.socket) as path:
        wait_until(lambda: _connected(connection, path), "a place in the queue")
    return connection


def _connected(connection: socket.socket, path: str) -> bool:
    with contextlib.suppress(BlockingIOError):  # as many wait already as may
        connection.connect(path)
        return True
    return False


def connections_of(target: Target) -> int:
    """How many sockets it holds."""
    held = 0
    for fd in Path(f"/proc/{target.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            held += os.readlink(fd).startswith("socket:")
    return held


def resident_mib(target: Target) -> float:
    """Its resident memory."""
    pages = int(Path(f"/proc/{target.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@pytest.mark.slow
@pytest.mark.fault("N3")
def test_slow_senders_keep_nobody_out(
    target: Target, flood: list[socket.socket], fault: Reached
) -> None:
    """600 requests that do not end: files can be opened, others are served, all are hung up on."""
    before = connections_of(target)
    for half in [HALF_HEADER, HALF_BODY] * 300:
        connection = connect(target)
        flood.append(connection)
        with contextlib.suppress(ConnectionError):  # hung up on: one too many
            connection.sendall(half)
    held: list[int] = []

    def are_few() -> bool:
        held.append(connections_of(target) - before)  # one too many is there until it is hung up on
        return held[-1] <= 64

    # How soon is told by tests/unit/vocabulary/test_connections.py, whatever the machine has to do.
    wait_until(are_few, "those too many hung up on")
    fault.at_most("connections held", 64, held[-1], "")
    fault.equals("an honest client during it is served", True, is_served(target))
    target.wait_for_output("opened a file while flooded")
    for connection in flood:
        with contextlib.suppress(ConnectionError):
            while connection.recv(1 << 16):
                pass
    fault.equals("hung up on", 600, len(flood))
    wait_until(lambda: connections_of(target) <= before, "the places free again")
    fault.equals("files that could not be opened", 0, target.output.count("could not"))


def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    """Connections that say nothing come before the server is loaded: who asks then is served."""
    fresh = start_program("idle", home=tmp_path / "home", cwd=tmp_path, PROBING="all")
    try:
        fresh.wait_for_agent()
        silent = [connect(fresh) for _ in range(30)]
        # One after the other they would be waited for, a second each.
        assert served_in_s(fresh) < 20
        for connection in silent:
            connection.close()
    finally:
        fresh.reap()


WAYS = ("killed", "stopped", "half closed")
READER = """
import os, signal, socket, sys, time
from pathlib import Path
from probing.rundir.folders import short_path
from probing.settings import Settings
connection = socket.socket(socket.AF_UNIX)
with short_path(Path(sys.argv[1])) as path:
    connection.connect(path)
body = sys.argv[3].encode()
connection.sendall(b"POST /v1/query HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n"
    b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
got = connection.recv(65536)
assert got.startswith(b"HTTP/1.1 200"), got
if sys.argv[2] == "half closed":
    connection.shutdown(socket.SHUT_WR)
print("reads", flush=True)
if sys.argv[2] == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.fault("N4")
@pytest.mark.parametrize(
    ("times", "clients_at_once"),
    [(1, len(WAYS)), pytest.param(20, 8, marks=pytest.mark.nightly)],
    ids=["few", "many"],
)
def test_clients_that_take_no_answer_are_given_up(
    target: Target, fault: Reached, times: int, clients_at_once: int
) -> None:
    """Killed, stopped or half closed in the middle of 64 MiB: no memory and no place is kept."""
    wire.decode(wire.SettingsAnswer, ask(address_of(target), "settings", timeout_s=DEADLINE_S))
    ask(address_of(target), "query", body=wire.QueryRequest(sql=LARGE), timeout_s=DEADLINE_S)
    before, peak = (connections_of(target), resident_mib(target)), 0.0
    for _ in range(times):
        clients = [
            start_reader(target, WAYS[number % len(WAYS)]) for number in range(clients_at_once)
        ]
        for number, client in enumerate(clients):
            assert client.stdout is not None
            assert client.stdout.readline() == b"reads\n"
            peak = max(peak, resident_mib(target))
            if WAYS[number % len(WAYS)] == "killed":
                client.kill()
        # How soon a client is given up is told by tests/unit/vocabulary/test_connections.py.
        are_free = wait_until(lambda: has_places(target, before[0]), "the places")
        for client in clients:
            client.kill()
            client.communicate()
    fault.equals("places are free", True, are_free)
    fault.at_most("growth of memory", 16, max(peak, resident_mib(target)) - before[1], "MiB")


def start_reader(target: Target, how: str) -> subprocess.Popen[bytes]:
    """A client that begins to read a large answer."""
    body = wire.encode(wire.QueryRequest(sql=LARGE)).decode()
    return subprocess.Popen(
        [sys.executable, "-c", READER, str(target.folder.socket), how, body],
        stdout=subprocess.PIPE,
        env=clean_env(target.home),
    )


def has_places(target: Target, before: int) -> bool:
    """Whether it holds no more connections than before, and no more than one SQL worker."""
    return connections_of(target) <= before and len(children_of(target.pid)) <= 1


@pytest.mark.slow
@pytest.mark.fault("N2")
@pytest.mark.parametrize(
    "count", [2_000, pytest.param(100_000, marks=pytest.mark.nightly)], ids=["few", "many"]
)
def test_malformed_requests_are_refused(target: Target, fault: Reached, count: int) -> None:
    """None makes the server fail, print or grow, and good requests are served all the while."""
    with ThreadPoolExecutor(48) as senders:
        Counter(senders.map(lambda data: send_raw(target, data), malformed_requests(400, seed=1)))
        printed, before = len(target.output), resident_mib(target)
        told = Counter(senders.map(lambda data: send_raw(target, data), malformed_requests(count)))
    print(told)
    bad = {status: n for status, n in told.items() if status >= 500 and status != 503}
    fault.equals("errors of the server", {}, bad)
    fault.equals("requests without an end", 0, told[STUCK])
    fault.equals("bytes printed", 0, len(target.output) - printed)
    fault.at_most("growth of memory", 8, resident_mib(target) - before, "MiB")
    fault.equals("the next good request is served", True, is_served(target))
    assert told[400] > count // 10
    assert told[200] > count // 100


def send_raw(target: Target, data: bytes) -> int:
    """Send bytes; returns the status of the answer, 0 where the connection was closed without."""
    answer = b""
    with connect(target) as connection, contextlib.suppress(ConnectionError):
        try:
            connection.sendall(data)
            answer = connection.recv(1 << 16)
            if answer == CONTINUE:
                answer = connection.recv(1 << 16)
        except TimeoutError:
            return STUCK
    found = STATUS.match(answer.removeprefix(CONTINUE))
    return int(found.group(1)) if found else 0


def test_a_body_has_the_time_that_its_setting_says(target: Target) -> None:
    """It is not the shorter time for a header that ends it, and its sender is told."""
    ask(address_of(target), "set", body=change("body_timeout_s", "2"), timeout_s=DEADLINE_S)
    try:
        assert send_raw(target, HALF_BODY) == 408
    finally:
        ask(address_of(target), "set", body=change("body_timeout_s", "1"), timeout_s=DEADLINE_S)


def test_a_bucket_fills_at_its_rate() -> None:
    """A sender has what has come together since, never more than a second's; others have theirs."""
    now = [0.0]
    rates = Rates(lambda: now[0])

    def takes(sender: int | str, tries: int) -> int:
        return sum(rates.take(sender, 10) for _ in range(tries))

    assert (takes(1, 50), takes("::1", 50), takes(1, 50)) == (10, 10, 0)
    now[0] = 0.5
    assert takes(1, 50) == 5
    now[0] = 60.0
    assert takes(1, 50) == 10
    for sender in range(5_000):  # so many are not remembered, and each is served all the same
        assert rates.take(sender + 10, 10)
    assert len(rates._buckets) <= 1024


@pytest.mark.fault("N7")
def test_a_sender_without_pause_is_refused(target: Target, fault: Reached) -> None:
    """Beyond its rate it gets 429, while another process gets its answers."""
    ask(address_of(target), "set", body=change("max_requests_per_s", "5"), timeout_s=DEADLINE_S)
    try:
        started = time.monotonic()
        with ThreadPoolExecutor(8) as senders:  # one after the other may be few on a busy machine
            told = Counter(senders.map(status_of, [target] * 60))
        most = 5 + 5 * (time.monotonic() - started) + 1
        fault.at_most("answers in one second and after", most, told[200], "")
        fault.equals("what else comes", {429}, set(told) - {200})
        assert target.run("config").returncode == 2  # says what it needs
        fault.equals(
            "another sender's exit code", 0, target.run(str(target.pid), "config").returncode
        )
    finally:
        wait_until(lambda: set_rate(target), "the rate as before")


def change(name: str, value: str) -> wire.SettingChange:
    """A setting to be changed."""
    return wire.SettingChange(name=name, value=value)


def set_rate(target: Target) -> bool:
    """Lift the limit, as soon as that is let through."""
    with contextlib.suppress(RemoteError):
        ask(
            address_of(target),
            "set",
            body=change("max_requests_per_s", "1000000"),
            timeout_s=DEADLINE_S,
        )
        return True
    return False


def status_of(target: Target) -> int:
    """The status of an answer."""
    try:
        ask(address_of(target), "status", timeout_s=DEADLINE_S)
    except RemoteError as error:
        return error.status
    return 200


@pytest.mark.fault("N7")
def test_requests_in_hand_are_bounded(target: Target, fault: Reached, tmp_path: Path) -> None:
    """With as many in hand as there may be, the next one is told so, and later it is served."""
    ask(address_of(target), "set", body=change("max_requests", "2"), timeout_s=DEADLINE_S)
    end = tmp_path / "end"
    code = f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)"
    waiting = wire.EvalRequest(code=code, timeout_s=DEADLINE_S)
    with ThreadPoolExecutor(2) as senders:
        running = [
            senders.submit(ask, address_of(target), "eval", body=waiting, timeout_s=DEADLINE_S)
            for _ in range(2)
        ]
        try:
            wait_until(lambda: status_of(target) == 503, "refused")
        finally:
            end.touch()
        wait_until(lambda: status_of(target) == 200, "served again")
        fault.equals("a third request", [503, 200], [503, status_of(target)])
        for one in running:
            with contextlib.suppress(RemoteError):
                one.result()
    ask(address_of(target), "set", body=change("max_requests", "16"), timeout_s=DEADLINE_S)


def refused(target: Target, route: str, body: object) -> tuple[int, str]:
    """Status and error code of a request that is refused."""
    with pytest.raises(RemoteError) as caught:
        ask(address_of(target), route, body=body, timeout_s=DEADLINE_S)
    return caught.value.status, caught.value.code


@pytest.mark.fault("Q2")
def test_what_is_too_large_is_refused(target: Target, fault: Reached) -> None:
    """SQL, code and bodies over their limits, told or not, packed or not."""
    large = (413, "request_too_large")
    for case, route, body in (
        ("SQL of 1 MB", "query", wire.QueryRequest(sql="SELECT 1" + " " * 1_000_000)),
        ("100,000 statements", "query", wire.QueryRequest(sql="SELECT 1;" * 100_000)),
        ("code of 100 kB", "eval", wire.EvalRequest(code="1+" * 50_000 + "1")),
        ("a body of 2 MB", "eval", wire.EvalRequest(code="#" * 2_000_000)),
    ):
        fault.equals(case, large, refused(target, route, body))
    statements = wire.QueryRequest(sql="SELECT 1;" * 7_000)
    fault.equals("7,000 statements", (403, "sql_refused"), refused(target, "query", statements))
    head = b"POST /v1/eval HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 32 + b"0\r\n\r\n"
    fault.equals("2 MB in chunks", 413, send_raw(target, chunked))
    before = resident_mib(target)
    packed = zlib.compress(b" " * (64 << 20), 9)
    bomb = b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    told = send_raw(target, head + bomb)
    fault.holds("64 MiB packed in 64 kB", "413 or 400", str(told), is_kept=told in {400, 413})
    fault.at_most("growth of memory by it", 16, resident_mib(target) - before, "MiB")


@pytest.mark.fault("Q2")
def test_a_large_answer_is_cut(target: Target, fault: Reached) -> None:
    """Of 10^8 rows a million come, of 70 MB 64 MiB, and both answers say so."""
    for case, sql, limit in (
        ("10^8 rows", "FROM range(100000000)", 1_000_000),
        ("70 MB", LARGE, 0),
    ):
        data = ask(
            address_of(target), "query", body=wire.QueryRequest(sql=sql), timeout_s=DEADLINE_S
        )
        answer = Answer.from_ipc(data)
        fault.holds(case, "cut", answer.truncated or "whole", is_kept=bool(answer.truncated))
        fault.at_most(f"{case}: bytes", (64 << 20) + (1 << 20), len(data), "bytes")
        assert not limit or answer.to_arrow().num_rows == limit


@pytest.mark.fault("Q2")
@pytest.mark.parametrize("limit", ["query_max_rows", "query_max_bytes"])
def test_a_live_table_that_is_too_large_is_refused(
    target: Target, fault: Reached, limit: str
) -> None:
    """By its route and by SQL over it, and never cut; with the limit as it was it is there."""
    _set(target, limit, "2")
    try:
        refused = _live_by_both_ways(target)
    finally:
        _set(target, limit, str(getattr(Settings(), limit)))
    for way, got in refused.items():
        fault.equals(f"a live table over {limit}, {way}", "live_too_large", got)
    assert set(_live_by_both_ways(target).values()) == {"answered"}


def _set(target: Target, name: str, value: str) -> None:
    """Change a setting of the process."""
    change = wire.SettingChange(name=name, value=value)
    ask(address_of(target), "set", body=change, timeout_s=DEADLINE_S)


def _live_by_both_ways(target: Target) -> dict[str, str]:
    """What comes of asking for a live table: the code of an error, or that it was answered."""
    sql = wire.QueryRequest(sql="SELECT count(*) FROM python.environment")
    ways: dict[str, Callable[[], bytes]] = {
        "by its route": lambda: ask(
            address_of(target), "live", timeout_s=DEADLINE_S, table="environment"
        ),
        "by SQL": lambda: ask(address_of(target), "query", body=sql, timeout_s=DEADLINE_S),
    }
    found = {}
    for way, asked in ways.items():
        try:
            asked()
            found[way] = "answered"
        except RemoteError as error:
            found[way] = error.code
    return found
