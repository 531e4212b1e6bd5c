"""Requests as nobody should send them: mutations of good ones.

Rules of this file: the same seed gives the same requests, whatever the Python. Leaving is not among
the routes: what is near to a request to leave might be one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from probing.messages.routes import ROUTES, Route

_BODIES = {
    "query": b'{"sql":"SELECT 1"}',
    "eval": b'{"code":"1","thread":null}',
    "labels": b'{"samples":"2"}',
    "profile": b'{"steps":1}',
    "arm": b'{"what":"nan","steps":1}',
    "set": b'{"name":"recording","value":"1"}',
    "record": b'{"state":"off"}',
    "snapshot": b'{"steps":1}',
    "fit": b'{"batch":4}',
    "repeat": b'{"code":"1","every":1,"times":1}',
    "cancel": b'{"number":1}',
    "eval_commit": b'{"meeting":"x"}',
    "end_session": b'{"session":"x"}',
    "complete": b'{"text":"pri","session":null}',
    "act": b'{"timeout_s":1}',
}
_HEADERS = (
    b"Content-Type: application/json",
    b"Accept-Encoding: gzip",
    b"Connection: keep-alive",
    b"Authorization: Bearer 0000",
    b"Expect: 100-continue",
    b"Cookie: a=b; c",
)
_ODD_HEADERS = (
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3",
    b"Content-Encoding: gzip",
    b"Content-Encoding: deflate",
    b"Content-Type: multipart/form-data; boundary=",
    b"Content-Type: application/json; charset=\xff\xfe",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x",
    b"Upgrade: h2c",
    b"Host:",
    b"Host: a\r\nHost: b",
    b"Origin: null",
    b"Range: bytes=0-",
    b": no name",
    b"no colon",
    b" folded: once",
    b"X: " + b"a" * 9000,
    b"X\x00Y: z",
)
_ODD_PATHS = (
    b"/v1/live/%00",
    b"/v1/live/" + b"a" * 300,
    b"/v1/live/..%2f..%2fetc",
    b"/v1/live/modules?wait_s=nan",
    b"/v1/live/modules?wait_s=1e400",
    b"/v1/backtrace?locals=%ff",
    b"/v1/query?" + b"a=b&" * 500,
    b"http://[::1/v1/status",
    b"http://other/v1/status",
    b"*",
    b"/\xff\xfe",
    b"//v1//status",
    b"/v1/status#x",
)
_ODD_BODIES = (
    b"",
    b"null",
    b"[]",
    b'"x"',
    b"{}",
    b'{"x":1}',
    b"[" * 50_000,
    b'{"sql":1}',
    b'{"sql":"SELECT 1","timeout_s":NaN}',
    b'{"sql":"SELECT 1","max_rows":-5}',
    b'{"sql":"\\ud800"}',
    b'{"code":"\\u0000"}',
    b'{"code":"1","timeout_s":NaN}',
    b'{"code":"\\udfff"}',
    b'{"steps":1e999}',
    b'{"steps":123456789012345678901234567890}',
    b'{"number":-1}',
    b"\xff\xfe\x00",
    b"\x1f\x8b\x08\x00garbage",
    b'{"a":' * 2000,
)
_ROUTES = tuple(route for route in ROUTES if route.name != "detach")


def malformed_requests(count: int, seed: int = 7) -> Iterator[bytes]:
    """So many requests, each good but for what was done to it."""
    chance = random.Random(seed)
    for _ in range(count):
        data = _request(chance)
        for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
            data = _mutated(data, chance)
        yield data


def _request(chance: random.Random) -> bytes:
    """A request whose parts are good or odd, and mostly of the length that it says."""
    route: Route = chance.choice(_ROUTES)
    path = route.path.format(table=chance.choice(("threads", "backtrace", "x"))).encode()
    body = _BODIES.get(route.name, b"{}") if route.method == "POST" else b""
    method, version = route.method.encode(), b"HTTP/1.1"
    headers = [b"Host: localhost", *chance.sample(_HEADERS, chance.randrange(4))]
    odd = chance.randrange(6)
    if odd == 0:
        headers.append(chance.choice(_ODD_HEADERS))
    elif odd == 1:
        path = chance.choice(_ODD_PATHS)
    elif odd == 2:
        body = chance.choice(_ODD_BODIES)
    elif odd == 3:
        method = chance.choice((b"PUT", b"CONNECT", b"OPTIONS", b"get", b"PRI", b"\x16\x03\x01"))
    elif odd == 4:
        version = chance.choice((b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"HTTP/1.1 ", b""))
    if route.method == "POST":
        headers.append(b"Content-Type: application/json")
    if body:
        headers.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([b" ".join((method, path, version)), *headers, b"", body])


def _mutated(data: bytes, chance: random.Random) -> bytes:
    """With one thing done to it."""
    at = chance.randrange(len(data) or 1)
    some = data[at : at + chance.randrange(1, 9)]
    kind = chance.choice((0, 0, 1, 1, 2, 2, 3, 3, 4))  # what is cut is waited for
    if kind == 0:
        return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[at + len(some) :]
    if kind == 2:
        return data[:at] + some * chance.randrange(2, 50) + data[at:]
    if kind == 3:
        return (
            data[:at] + chance.choice((b"\r\n", b"\n", b"\x00", b"\r", b"\xff", b" ")) + data[at:]
        )
    return data[:at]
