"""Who may ask the agent, and what every route says."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing import wire
from probing.errors import error_classes
from probing.routes import ROUTES, openapi
from probing.rundir import ProcessFolder
from probing.transport import Address, ask
from tests.harness.targets import Target, start_program

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
        PROBING_ALLOW_EVAL="1",
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


def test_errors_are_declared_whole() -> None:
    """Every error has a code of its own, an exit code of the design and a fitting status."""
    classes = [c for c in error_classes() if c.__module__.startswith("probing.errors")]
    codes = [cls.code for cls in classes]
    assert len(set(codes)) == len(codes)
    assert all(cls.exit_code in {1, 2, 3, 4, 5} for cls in classes)
    assert all(400 <= cls.status < 600 for cls in classes)


def test_a_folder_is_found_by_pid_and_start(idle: Target) -> None:
    """The run folder's name tells the process from any other with a recycled pid."""
    assert idle.folder.is_alive()
    other = ProcessFolder(idle.folder.path, idle.pid, idle.folder.start_time + 1)
    assert not other.is_alive()
