"""Who may ask the agent, and what every route says."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing import wire
from probing.errors import ConnectionLost, error_classes
from probing.routes import ROUTES, openapi
from probing.rundir import ProcessFolder
from probing.transport import Address, ask
from tests.support import Target, clean_env, start_program, wait_until

pytestmark = pytest.mark.anypython


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A process with an agent that also listens on TCP."""
    cwd = tmp_path_factory.mktemp("idle")
    target = start_program(
        "idle",
        home=cwd / "home",
        cwd=cwd,
        PROBING="all",
        PROBING_LISTEN="127.0.0.1:0",
        PROBING_MAX_BODY_BYTES="2048",
    )
    target.wait_for_agent()
    yield target
    target.reap()


@pytest.fixture
def address(idle: Target) -> Address:
    """Its TCP address with the right token."""
    card = idle.folder.read_card()
    assert card is not None
    assert card.listen is not None
    host, _, port = card.listen.rpartition(":")
    return Address(host=host, port=int(port), token=idle.folder.token.read_text())


def send(
    address: Address, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    """One raw request; a header given as an empty text is left out."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
    sent = {"Authorization": f"Bearer {address.token}", "Content-Type": wire.JSON_TYPE}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {k: v for k, v in sent.items() if v})
    response = connection.getresponse()
    try:
        return response.status, response.read()
    finally:
        connection.close()


def code_of(answer: tuple[int, bytes]) -> tuple[int, str]:
    """The status and the error code of an answer."""
    return answer[0], json.loads(answer[1])["error"]["code"]


def test_tcp_needs_the_token(address: Address) -> None:
    """Without the token, or with another, nothing is answered but 401."""
    assert send(address, "GET", "/v1/status")[0] == 200
    assert code_of(send(address, "GET", "/v1/status", Authorization="")) == (401, "bad_token")
    for wrong in ("Bearer", "Bearer x", f"Basic {address.token}", f"Bearer {address.token}x"):
        answer = send(address, "GET", "/v1/status", Authorization=wrong)
        assert code_of(answer) == (401, "bad_token")


def test_the_token_is_told_nowhere(idle: Target, address: Address) -> None:
    """Neither card, settings, command line nor output has the token; its file is private."""
    token = idle.folder.token.read_text()
    assert len(token) == 64
    assert idle.folder.token.stat().st_mode & 0o777 == 0o600
    shown = [
        (idle.folder.path / "card.json").read_text(),
        send(address, "GET", "/v1/settings")[1].decode(),
        Path(f"/proc/{idle.pid}/cmdline").read_text(),
        idle.output,
    ]
    assert all(token not in text for text in shown)


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:{port}", True),
        ("localhost:{port}", True),
        ("[::1]:{port}", True),
        ("127.0.0.1", False),
        ("127.0.0.1:1", False),
        ("evil.test:{port}", False),
        ("localhost6:{port}", False),
        ("0177.0.0.1:{port}", False),
        ("localhost.evil.test:{port}", False),
        ("127.0.0.1:{port}.evil.test", False),
    ],
)
def test_only_known_hosts_are_served(host: str, served: bool, address: Address) -> None:
    """A name that somebody else made to point here is refused before the token is looked at."""
    answer = send(address, "GET", "/v1/ping", Host=host.format(port=address.port))
    if served:
        assert answer[0] == 200
    else:
        assert code_of(answer) == (403, "bad_origin")


def test_a_web_page_is_refused(address: Address) -> None:
    """Whatever its origin, a page in a browser can ask nothing, not even with the token."""
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{address.port}"):
        assert code_of(send(address, "GET", "/v1/status", Origin=origin)) == (403, "bad_origin")


def test_only_json_is_posted(address: Address) -> None:
    """A form or plain text, which a page could send without asking, is no request."""
    body = wire.encode(wire.EvalRequest(code="1"))
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = send(address, "POST", "/v1/eval", body, Content_Type=kind)
        assert code_of(answer) == (400, "bad_request")


def test_a_body_has_a_limit(address: Address) -> None:
    """More than the limit is refused, whatever it says."""
    body = wire.encode(wire.EvalRequest(code="#" * 4096))
    assert code_of(send(address, "POST", "/v1/eval", body)) == (413, "request_too_large")


def test_every_error_has_the_one_shape(address: Address) -> None:
    """Wrong path, wrong method, wrong body, on every route: the same error body."""
    answers = [send(address, "GET", "/"), send(address, "DELETE", "/v1/eval")]
    methods = Counter(route.path for route in ROUTES)
    for route in ROUTES:
        path = route.path.format(table="no_such_table")
        other = "POST" if route.method == "GET" else "GET"
        if methods[route.path] == 1:
            answers.append(send(address, other, path, b"{}"))
        if route.request is not None:
            answers += [send(address, "POST", path, b) for b in (b"", b"[]", b"{", b'{"x": 1}')]
    answers.append(send(address, "GET", "/v1/live/no_such_table"))
    for status, body in answers:
        assert status >= 400, body
        error = json.loads(body)["error"]
        assert set(error) == {"code", "status", "exit_code", "message", "help", "detail"}
        assert error["status"] == status
        assert error["message"].endswith((".", "!", "?"))


def test_the_description_agrees_with_the_routes(address: Address) -> None:
    """The OpenAPI document that is served has every route, and every route answers as it says."""
    document = json.loads(send(address, "GET", "/v1/openapi.json")[1])
    assert document == openapi(document["info"]["version"])
    described = {(m.upper(), p) for p, ops in document["paths"].items() for m in ops}
    assert described == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        if route.method == "GET" and isinstance(route.answer, type):
            path = route.path.format(table="threads")
            wire.decode(route.answer, send(address, "GET", path)[1])


def test_a_ping_loads_nothing(tmp_path: Path) -> None:
    """The agent answers pings without aiohttp, again and again; the first question loads it."""
    target = start_program("idle", home=tmp_path / "home", cwd=tmp_path, PROBING="all")
    try:
        target.wait_for_agent()
        here = Address(path=target.folder.socket)
        for _ in range(20):
            assert wire.decode(wire.Pong, ask(here, "ping", timeout_s=5)).pid == target.pid
        maps = Path(f"/proc/{target.pid}/maps")
        assert "aiohttp" not in maps.read_text()
        ask(here, "status", timeout_s=10)
        assert "aiohttp" in maps.read_text()
    finally:
        target.reap()


def test_the_socket_is_its_owners(idle: Target) -> None:
    """Directory 0700, socket 0600."""
    assert idle.home.stat().st_mode & 0o777 == 0o700
    assert idle.folder.path.stat().st_mode & 0o777 == 0o700
    assert idle.folder.socket.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_gets_not_a_byte(idle: Target) -> None:
    """A peer with another user id, who got at the socket somehow, is hung up on."""
    code = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.settimeout(5)\n"
        "os.chdir(os.path.dirname(sys.argv[1]))\n"
        "os.setuid(65534)\n"
        "try:\n"
        "    s.connect('sock')\n"
        "    s.sendall(b'GET /v1/status HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "    print(len(s.recv(100)))\n"
        "except ConnectionError:\n"
        "    print(0)\n"
    )
    idle.folder.socket.chmod(0o666)
    idle.folder.path.chmod(0o711)
    idle.home.chmod(0o711)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(idle.folder.socket)],
            env=clean_env(idle.home),
            capture_output=True,
            text=True,
            timeout=30,
        )
    finally:
        idle.folder.socket.chmod(0o600)
        idle.folder.path.chmod(0o700)
        idle.home.chmod(0o700)
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_connections_are_bounded(program: Callable[..., Target]) -> None:
    """300 half-open connections at a low descriptor limit: an honest client is still served."""
    target = program("few_files", PROBING="all")
    target.wait_for_output("ready")
    here = Address(path=target.folder.socket)
    ask(here, "status", timeout_s=10)
    with contextlib.ExitStack() as flood:
        for _ in range(300):
            one = flood.enter_context(socket.socket(socket.AF_UNIX))
            one.connect(str(here.path))
            with contextlib.suppress(ConnectionError):  # hung up on: one too many
                one.sendall(b"GET /v1/status HTTP/1.1\r\n")
        target.wait_for_output("opened a file while flooded")

    def answered() -> bool:
        with contextlib.suppress(ConnectionLost):  # until it has seen that the flood is over
            return wire.decode(wire.Card, ask(here, "status", timeout_s=10)).pid == target.pid
        return False

    wait_until(answered, "an answer after the flood", deadline_s=10)


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        ("0.0.0.0:0", "without encryption"),
        ("nonsense", "is not host:port"),
        ("127.0.0.1:{taken}", "Address already in use"),
    ],
)
def test_a_listener_that_cannot_be_is_told(
    listen: str, told: str, program: Callable[..., Target]
) -> None:
    """An open address without leave, or a taken port: no TCP, the reason on the card."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        target = program("idle", PROBING="all", PROBING_LISTEN=listen.format(taken=port))
        target.wait_for_agent()
    card = target.folder.read_card()
    assert card is not None
    assert card.listen is None
    assert told in card.problems[0]
    ask(Address(path=target.folder.socket), "ping", timeout_s=10)


def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    """A run directory deeper than a socket address may be long works all the same."""
    home = tmp_path / ("d" * 100) / ("e" * 100)
    target = start_program("idle", home=home, cwd=tmp_path, PROBING="all")
    try:
        target.wait_for_agent()
        assert len(str(target.folder.socket)) > 200
        ask(Address(path=target.folder.socket), "status", timeout_s=10)
    finally:
        target.reap()


def test_errors_are_declared_whole() -> None:
    """Every error has a code of its own, an exit code of the design and a fitting status."""
    classes = [c for c in error_classes() if c.__module__ == "probing.errors"]
    codes = [cls.code for cls in classes]
    assert len(set(codes)) == len(codes)
    assert all(cls.exit_code in {1, 2, 3, 4, 5} for cls in classes)
    assert all(400 <= cls.status < 600 for cls in classes)


def test_a_folder_is_found_by_pid_and_start(idle: Target) -> None:
    """The run folder's name tells the process from any other with a recycled pid."""
    assert idle.folder.is_alive()
    other = ProcessFolder(idle.folder.path, idle.pid, idle.folder.start_time + 1)
    assert not other.is_alive()
