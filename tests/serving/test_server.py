"""Who may ask the agent, and what every route says."""

from __future__ import annotations

import dataclasses
import gzip
import http.client
import json
import re
import socket
import typing
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probing.errors import error_classes
from probing.messages import common as wire
from probing.messages.openapi import openapi
from probing.messages.routes import ROUTES
from probing.reach.address import Address
from probing.reach.transport import ask
from probing.rundir.folders import ProcessFolder
from tests.harness.targets import DEADLINE_S, Target, start_program

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
    connection = http.client.HTTPConnection(address.host, address.port, timeout=DEADLINE_S)
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


def raw(address: Address, data: bytes) -> bytes:
    """What comes back for some bytes, until the other side closes or has said what it has to."""
    with socket.create_connection((address.host, address.port), timeout=DEADLINE_S) as connection:
        connection.sendall(data)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
            head, blank, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if blank and length and len(body) >= int(length[1]):
                break
    return answer


def error_in(answer: bytes) -> tuple[int, str, str]:
    """The status of a raw answer, and code and message of the error in it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert head.split(b" ")[1] == b"%d" % error["status"], answer
    return error["status"], error["code"], error["message"]


def request_to(address: Address, first: str, *headers: str, body: bytes = b"") -> bytes:
    """A request with a token, as bytes."""
    lines = [
        first,
        f"Host: {address}",
        f"Authorization: Bearer {address.token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode() + body


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
        b"no HTTP at all\r\n\r\n",
        b"GET / HTTP/9.7\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=["tls", "words", "version", "length", "long header", "long path"],
)
def test_what_cannot_be_read_is_refused_in_our_words(address: Address, data: bytes) -> None:
    """Body, code and text are ours, and nothing of what was sent is in them."""
    status, code, message = error_in(raw(address, data))
    assert (status, code) == (400, "bad_request")
    assert re.fullmatch(r"bad request: (what came|a line of its head) is [a-zA-Z ]+\.", message)


def test_a_way_to_nowhere_is_refused_in_our_words(address: Address) -> None:
    """What has no path, or an odd one, is asked who it is and told that there is no route."""
    for first in ("CONNECT localhost:22 HTTP/1.1", "OPTIONS * HTTP/1.1", "GET /a%0Ab HTTP/1.1"):
        assert error_in(raw(address, request_to(address, first)))[:2] == (404, "no_such_route")
        stranger = dataclasses.replace(address, token="none")
        assert error_in(raw(address, request_to(stranger, first)))[:2] == (401, "bad_token")


def test_a_body_is_asked_for_once_it_is_known_who_asks(address: Address) -> None:
    """`100 Continue` comes after the token was looked at, and never before a refusal."""
    body = wire.encode(wire.EvalRequest(code="1", now=True))
    for path in ("/v1/eval", "/v1/nothing"):
        stranger = dataclasses.replace(address, token="none")
        asked = request_to(stranger, f"POST {path} HTTP/1.1", "Expect: 100-continue", body=body)
        head = asked[: -len(body)]
        assert error_in(raw(address, head))[:2] == (401, "bad_token")
    asked = request_to(address, "POST /v1/eval HTTP/1.1", "Expect: 100-continue", body=body)
    with socket.create_connection((address.host, address.port), timeout=DEADLINE_S) as connection:
        connection.sendall(asked[: -len(body)])
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("mib", [1, 64])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_unpacks_without_end_is_too_large(
    address: Address, encoding: str, mib: int
) -> None:
    """A few bytes that stand for very many are refused as those would be."""
    blank = b" " * (mib << 20)
    packed = gzip.compress(blank) if encoding == "gzip" else zlib.compress(blank)
    first = "POST /v1/eval HTTP/1.1"
    answer = raw(address, request_to(address, first, f"Content-Encoding: {encoding}", body=packed))
    assert error_in(answer)[:2] == (413, "request_too_large")


def test_a_time_limit_is_more_than_nothing(address: Address) -> None:
    """On every route that takes one, a limit of no time or less is a bad request."""
    samples: dict[type, Any] = {str: "1", int: 1, tuple: []}
    looked_at = 0
    for route in ROUTES:
        if route.request is None or "timeout_s" not in route.request.__dataclass_fields__:
            continue
        hints = typing.get_type_hints(route.request)
        fields = [f for f in dataclasses.fields(route.request) if f.default is dataclasses.MISSING]
        needed = {field.name: samples[hints[field.name]] for field in fields}
        for limit in (-1, 0, -0.5):
            body = json.dumps({**needed, "timeout_s": limit}).encode()
            status, answer = send(address, "POST", route.path, body)
            assert status == 400, (route.name, limit, answer)
            assert b"timeout_s must be a time of more than 0 seconds" in answer
        looked_at += 1
    assert looked_at >= 8


def test_the_description_agrees_with_the_routes(address: Address) -> None:
    """The OpenAPI document that is served has every route, and every route answers as it says."""
    document = json.loads(send(address, "GET", "/v1/openapi.json")[1])
    assert document == openapi(document["info"]["version"])
    described = {(m.upper(), p) for p, ops in document["paths"].items() for m in ops}
    assert described == {(route.method, route.path) for route in ROUTES}
    bodies = document["components"]["schemas"]
    assert all(body["description"] for name, body in bodies.items() if name != "Error")
    timeout = bodies["ActRequest"]["properties"]["timeout_s"]
    assert timeout["description"] == "The longest wait for the end of a step."
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
            assert wire.decode(wire.Pong, ask(here, "ping", timeout_s=DEADLINE_S)).pid == target.pid
        maps = Path(f"/proc/{target.pid}/maps")
        assert "aiohttp" not in maps.read_text()
        ask(here, "status", timeout_s=DEADLINE_S)
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


def test_a_damaged_card_hides_no_live_agent(idle: Target) -> None:
    """It is found, asked and listed all the same, and has put its card right by then."""
    for asked in (["status"], ["eval", "1"]):
        (idle.folder.path / "card.json").write_text("{damaged")
        done = idle.run(str(idle.pid), *asked)
        assert (done.returncode, done.stderr.count("error")) == (0, 0), done.stderr
    (idle.folder.path / "card.json").write_text("")
    (found,) = json.loads(idle.run("list", "--format", "json").stdout)
    assert (found["pid"], found["state"], found["problems"]) == (idle.pid, "idle", [])
    assert idle.folder.read_card() is not None


def test_a_folder_is_found_by_pid_and_start(idle: Target) -> None:
    """The run folder's name tells the process from any other with a recycled pid."""
    assert idle.folder.is_alive()
    other = ProcessFolder(idle.folder.path, idle.pid, idle.folder.start_time + 1)
    assert not other.is_alive()
