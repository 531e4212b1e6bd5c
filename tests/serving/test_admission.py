"""Who gets an answer over TCP, and to what: 60 cases and a web page against a real agent."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import probing
from probing.messages import common as wire
from probing.reach.address import Address
from probing.settings import Settings
from tests.faults import Reached
from tests.harness.targets import DEADLINE_S, clean_env, start_program, wait_until

pytestmark = pytest.mark.anypython

CODE = b"{\"code\":\"open('effect','w')\"}"
CHANGE = b'{"name":"recording","value":"0"}'
CHECKPOINT = b'{"checkpoint":{"path":"effect","force":true}}'
QUERY = b'{"sql":"SELECT 6 * 7 AS x"}'
JSON = {"Content-Type": "application/json"}
OURS = "127.0.0.1:{port}"
RATE = Settings().max_requests_per_s
FLOOD_S = 2.0


class Case(NamedTuple):
    """One request: what differs from a good one, and the status that it must get.

    Attributes:
        headers: ``{token}``, ``{read}`` and ``{port}`` stand for those of the agent.
    """

    name: str
    status: int
    line: str = "GET /v1/status"
    headers: tuple[str, ...] = ("Host: " + OURS, "Authorization: Bearer {token}")
    body: bytes = b""


def host(value: str, status: int = 421) -> Case:
    """A request with another Host."""
    return Case(
        f"Host {value}", status, headers=(f"Host: {value}", "Authorization: Bearer {token}")
    )


def token(value: str, status: int = 401, line: str = "GET /v1/status", body: bytes = b"") -> Case:
    """A request with another token, or several, separated by newlines."""
    given = tuple(f"Authorization: {one}" for one in value.split("\n") if one)
    kind = ("Content-Type: application/json",) if body else ()
    return Case(f"{line}, token {value!r}", status, line, ("Host: " + OURS, *given, *kind), body)


def with_header(header: str, status: int, line: str = "GET /v1/status", body: bytes = b"") -> Case:
    """A request with a header more."""
    headers = (*Case("", 0).headers, *((header,) if header else ()))
    return Case(f"{line}, {header or 'no more'}", status, line, headers, body)


MATRIX = (
    *(host(name, 200) for name in (OURS, "localhost:{port}", "[::1]:{port}", "trainer.test:7")),
    *(
        host(name)
        for name in (
            "", "127.0.0.1", "127.0.0.1:1", "evil.test:{port}", "localhost6:{port}",
            "0177.0.0.1:{port}", "2130706433:{port}", "0x7f.0.0.1:{port}", "127.1:{port}",
            "localhost.:{port}", "LOCALHOST:{port}", "localhost.evil.test:{port}",
            "127.0.0.1:{port}.evil.test", "[::ffff:127.0.0.1]:{port}", "127.0.0.1:0{port}",
            "me@127.0.0.1:{port}", "trainer.test", "0.0.0.0:{port}",
        )
    ),
    Case("no Host", 400, headers=("Authorization: Bearer {token}",)),
    Case("two Hosts", 400, headers=("Host: " + OURS, "Host: " + OURS, *Case("", 0).headers[1:])),
    token(""), token("Bearer"), token("Bearer "), token("Bearer x"), token("Bearer {token}x"),
    token("bearer {token}"), token("Basic {token}"), token("{token}"),
    token("Bearer {token}\nBearer {token}"),
    Case("the token in the URL", 401, "GET /v1/status?token={token}", ("Host: " + OURS,)),
    Case("the token in a cookie", 401, headers=("Host: " + OURS, "Cookie: token={token}")),
    token("Bearer {read}", 200),
    token("Bearer {read}", 200, "GET /v1/backtrace"),
    token("Bearer {read}", 200, "POST /v1/query", QUERY),
    token("Bearer {read}", 403, "POST /v1/eval", CODE),
    token("Bearer {read}", 403, "POST /v1/settings", CHANGE),
    token("Bearer {read}", 403, "POST /v1/act", b'{"cleanup":{}}'),
    token("Bearer {read}", 403, "POST /v1/detach", b"{}"),
    token("Bearer {read}", 403, "POST /v1/jobs/cancel", b'{"number":1}'),
    token("Bearer {token}", 403, "POST /v1/eval", CODE),
    token("Bearer {token}", 403, "POST /v1/eval/repeat", CODE),
    token("Bearer {token}", 403, "POST /v1/complete", b'{"text":"x"}'),
    token("Bearer {token}", 403, "POST /v1/act", CHECKPOINT),
    token("Bearer {token}", 403, "POST /v1/act/prepare", CHECKPOINT),
    *(
        with_header(f"Origin: {origin}", 403)
        for origin in ("https://evil.test", "null", "http://127.0.0.1:{port}", "")
    ),
    with_header("Origin: http://evil.test", 403, "OPTIONS /v1/eval"),
    with_header("no header at all", 400),
    with_header("", 405, "OPTIONS /v1/eval"),
    with_header("", 405, "GET /v1/eval"), with_header("", 405, "PUT /v1/settings", CHANGE),
    with_header("", 405, "HEAD /v1/status"), with_header("", 404, "GET /v1/nothing"),
    *(
        with_header(header, 400, "POST /v1/settings", CHANGE)
        for header in (
            "", "Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded",
            "Content-Type: multipart/form-data; boundary=b", "Content-Type: application/jsonx",
            "Content-Type: text/plain; application/json",
        )
    ),
    with_header("Content-Type: application/json; charset=utf-8", 200, "POST /v1/query", QUERY),
)  # fmt: skip


class Agent:
    """An agent that listens on TCP.

    Attributes:
        answers: The bytes of all answers that were got.
    """

    def __init__(self, folder: Path, **extra: str) -> None:
        self.target = start_program(
            "idle", home=folder / "home", cwd=folder, PROBING="all",
            PROBING_LISTEN="127.0.0.1:0", PROBING_HOSTS="trainer.test:7", **extra,
        )  # fmt: skip
        self.target.wait_for_agent()
        card = self.target.folder.read_card()
        assert card is not None
        assert card.listen is not None
        self.port = int(card.listen.rpartition(":")[2])
        self.token = self.target.folder.token.read_text()
        self.read = self.target.folder.read_token.read_text()
        self.answers: list[bytes] = []

    def ask(self, case: Case) -> tuple[int, bytes]:
        """Send a request as it stands; status and all bytes of the answer."""
        names = {"port": self.port, "token": self.token, "read": self.read}
        lines = [f"{case.line} HTTP/1.1", *case.headers, "Connection: close"]
        if case.body:
            lines.append(f"Content-Length: {len(case.body)}")
        head = "\r\n".join(line.format(**names) for line in lines) + "\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_S) as connection:
            connection.sendall(head.encode() + case.body)
            got = b"".join(iter(lambda: connection.recv(65536), b""))
        self.answers.append(got)
        return int(got.split(b" ", 2)[1]), got

    def effects(self) -> dict[str, Any]:
        """What any of the refused requests would have changed."""
        here = Address(path=self.target.folder.socket)
        settings = json.loads(self._get(here, "/v1/settings"))["settings"]
        return {
            "files": (self.target.cwd / "effect").exists(),
            "recording": next(s["value"] for s in settings if s["name"] == "recording"),
            "actions": json.loads(self._get(here, "/v1/act"))["acts"],
            "evals": self.target.folder.ring("evals").exists(),
        }

    def _get(self, address: Address, path: str) -> bytes:
        connection = http.client.HTTPConnection("localhost", timeout=DEADLINE_S)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(address.path))
        connection.request("GET", path)
        try:
            return connection.getresponse().read()
        finally:
            connection.close()


NO_EFFECTS = {"files": False, "recording": "True", "actions": [], "evals": False}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent as it is by default, listening on TCP."""
    started = Agent(tmp_path_factory.mktemp("agent"))
    yield started
    started.target.reap()


@pytest.mark.fault("N5")
def test_who_gets_an_answer(agent: Agent, fault: Reached) -> None:
    """Every combination of Host, Origin, method, content type and token gets its status alone."""
    assert len(MATRIX) > 60
    for case in MATRIX:
        status, got = agent.ask(case)
        fault.equals(case.name, case.status, status)
        assert b"access-control" not in got.lower()
        head = got.lower().partition(b"\r\n\r\n")[0]
        assert not re.search(rb"server|aiohttp|python", head), case.name
    fault.equals("effects of all of them", NO_EFFECTS, agent.effects())


@pytest.mark.fault("N7")
def test_who_may_not_ask_does_not_take_all_of_the_time(agent: Agent, fault: Reached) -> None:
    """Beyond the rate its refusals wait, and who has the token at the same address is served."""
    request = f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1:{agent.port}\r\n\r\n".encode()
    got, began = bytearray(), time.monotonic()
    with socket.create_connection(("127.0.0.1", agent.port), 0.1) as connection:
        # What other tests were refused counts, too: the first of these may wait for its turn.
        while (took_s := time.monotonic() - began) < FLOOD_S or not got:
            assert took_s < DEADLINE_S
            with contextlib.suppress(TimeoutError):
                connection.sendall(request * 20)
            with contextlib.suppress(TimeoutError):
                got += connection.recv(1 << 20)
        fault.equals("who has the token, at that address", 200, agent.ask(Case("", 200))[0])
    told = re.findall(rb"HTTP/1\.1 (\d+) ", bytes(got))
    fault.equals("what comes without it", {b"401"}, set(told))
    fault.at_most("refusals in two seconds", RATE + (RATE + 10) * took_s + 20, len(told), "")


@pytest.mark.fault("N5")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_gets_not_a_byte(agent: Agent, fault: Reached) -> None:
    """A peer with another user id, who got at the socket somehow, is hung up on."""
    code = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.settimeout(60)\n"
        "os.chdir(os.path.dirname(sys.argv[1]))\n"
        "os.setuid(65534)\n"
        "try:\n"
        "    s.connect('sock')\n"
        "    s.sendall(b'GET /v1/status HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "    print(len(s.recv(100)))\n"
        "except ConnectionError:\n"
        "    print(0)\n"
    )
    target = agent.target
    opened = {target.folder.socket: 0o666, target.folder.path: 0o711, target.home: 0o711}
    for path, mode in opened.items():
        path.chmod(mode)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(target.folder.socket)],
            env=clean_env(target.home), capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
    finally:
        for path in opened:
            path.chmod(0o600 if path == target.folder.socket else 0o700)
    fault.equals("bytes to another user", "0", done.stdout.strip())
    assert done.stderr == ""


def command_lines() -> bytes:
    """Those of all processes, of which some end meanwhile."""
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += path.read_bytes()
    return found


@pytest.mark.fault("N6")
def test_the_tokens_are_told_nowhere(agent: Agent, fault: Reached) -> None:
    """No file but their own, no command line, output, listing or answer has the tokens."""
    target = agent.target
    for case in MATRIX:
        if case.status >= 400:
            agent.ask(case)
    agent.ask(with_header("no header at all", 400))
    agent.ask(with_header("X: " + "y" * 10_000, 400))
    listen = f"127.0.0.1:{agent.port}"
    ran = [
        target.run(*words, PROBING_TOKEN=secret)
        for words, secret in (
            ((listen, "config"), agent.token),
            (("list", "--format", "json"), agent.token),
            ((listen, "query", "SELECT nothing"), agent.read),
        )
    ]
    ran.append(target.run(listen, "status", PROBING_TOKEN=f"{agent.token}\nx"))
    assert ran[-1].returncode == 2
    places = {
        "answers": b"".join(agent.answers),
        "commands": "".join(done.stdout + done.stderr for done in ran).encode(),
        "output of the process": target.log.read_bytes(),
        "command lines": command_lines(),
        "files of the run directory": b"".join(
            path.read_bytes()
            for path in target.home.rglob("*")
            if path.is_file() and path.name not in {"token", "read_token"}
        ),
    }
    for name, content in places.items():
        hits = sum(content.count(secret.encode()) for secret in (agent.token, agent.read))
        fault.equals(name, 0, hits)
        assert content or name == "output of the process"
    for path in (target.folder.token, target.folder.read_token):
        fault.equals(f"mode of {path.name}", "600", f"{path.stat().st_mode & 0o777:o}")
        assert re.fullmatch("[0-9a-f]{64}", path.read_text())


class Page(BaseHTTPRequestHandler):
    """Serves the page, takes its report, and lets itself be driven by it, as proof that it can."""

    def do_GET(self) -> None:
        """The page, or whatever it asks for."""
        is_page = self.path.startswith("/page")
        body = PAGE.encode() if is_page else b"readable"
        self._answer(body, "text/html" if is_page else "text/plain")

    def do_OPTIONS(self) -> None:
        """Allow everything."""
        self._answer(b"", "text/plain")

    def do_POST(self) -> None:
        """The report, or a request that the page was able to send."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/report":
            SEEN["report"].append(body)
        else:
            SEEN["driven"].append(body)
        self._answer(b"readable", "text/plain")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        for name, value in (
            ("Content-Type", kind), ("Content-Length", str(len(body))),
            ("Access-Control-Allow-Origin", self.headers.get("Origin", "*")),
            ("Access-Control-Allow-Headers", "authorization, content-type"),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


SEEN: dict[str, list[bytes]] = {"report": [], "driven": []}

PAGE = r"""<!doctype html><meta charset=utf-8><body><script>
const parameters = new URLSearchParams(location.search)
const token = parameters.get('token')
const code = JSON.stringify({code: "open('effect','w')"})
const change = JSON.stringify({name: 'recording', value: '0'})
async function attempt(found, name, work) {
  try { const text = await Promise.race([work(), new Promise((_, no) => setTimeout(no, 5000))])
        found[name] = (text || '').length } catch (error) { found[name] = 0 }
}
const element = (tag, fields) => new Promise(done => {
  const made = Object.assign(document.createElement(tag), fields)
  made.onload = () => done(made); made.onerror = () => done(null); document.body.append(made) })
async function drive(base) {
  const found = {}, json = {'Content-Type': 'application/json'}
  const bearer = {...json, Authorization: 'Bearer ' + token}
  const text = async answer => await (await answer).text()
  await attempt(found, 'fetch', () => text(fetch(base + '/v1/status')))
  await attempt(found, 'no-cors', () => text(fetch(base + '/v1/status', {mode: 'no-cors'})))
  await attempt(found, 'with the token', () => text(fetch(base + '/v1/status', {headers: bearer})))
  for (const [path, body] of [['/v1/eval', code], ['/v1/settings', change]]) {
    await attempt(found, 'simple POST ' + path, () => text(fetch(base + path,
      {method: 'POST', body, headers: {'Content-Type': 'text/plain'}})))
    await attempt(found, 'no-cors POST ' + path, () => text(fetch(base + path,
      {method: 'POST', body, mode: 'no-cors'})))
    await attempt(found, 'preflight POST ' + path, () => text(fetch(base + path,
      {method: 'POST', body, headers: bearer})))
    await attempt(found, 'beacon ' + path, async () => {
      navigator.sendBeacon(base + path, new Blob([body], {type: 'text/plain'})); return '' })
    await attempt(found, 'form ' + path, async () => {
      const frame = await element('iframe', {name: 'f' + path, src: 'about:blank'})
      const form = Object.assign(document.createElement('form'),
        {action: base + path, method: 'post', enctype: 'text/plain', target: 'f' + path})
      form.append(Object.assign(document.createElement('input'),
        {name: body.slice(0, -1) + ',"x":"', value: '"}'}))
      document.body.append(form)
      const loaded = new Promise(done => { frame.onload = done })
      form.submit(); await loaded
      return frame.contentDocument ? frame.contentDocument.body.innerText : '' })
  }
  await attempt(found, 'XMLHttpRequest', () => new Promise((done, no) => {
    const request = new XMLHttpRequest(); request.open('GET', base + '/v1/backtrace')
    request.onload = () => done(request.responseText); request.onerror = no; request.send() }))
  await attempt(found, 'iframe', async () => {
    const frame = await element('iframe', {src: base + '/v1/status'})
    return frame.contentDocument ? frame.contentDocument.body.innerText : '' })
  for (const [tag, fields] of [['script', {src: base + '/v1/status'}],
      ['img', {src: base + '/v1/status'}],
      ['link', {rel: 'stylesheet', href: base + '/v1/status'}]])
    await attempt(found, tag, async () => { await element(tag, fields); return '' })
  await attempt(found, 'EventSource', () => new Promise((done, no) => {
    const source = new EventSource(base + '/v1/status')
    source.onmessage = event => done(event.data)
    source.onerror = () => { source.close(); no() } }))
  await attempt(found, 'WebSocket', () => new Promise((done, no) => {
    const made = new WebSocket(base.replace('http', 'ws') + '/v1/eval')
    made.onopen = () => done('open'); made.onerror = no }))
  return found
}
(async () => {
  const report = {}
  for (const who of ['agent', 'other']) report[who] = await drive(parameters.get(who))
  await fetch('/report', {method: 'POST', body: JSON.stringify(report)})
})()
</script>"""


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.fault("N5")
def test_a_web_page_cannot_drive_it(fault: Reached, tmp_path: Path) -> None:
    """A page that even knows the token reads not a byte and changes nothing, eval allowed or not.

    The same page does all of that to a server that lets it: the attempts are real ones.
    """
    assert CHROMIUM is not None
    agent = Agent(tmp_path, PROBING_ALLOW_EVAL="1")
    pages = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    other = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    for server in (pages, other):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    url = (
        f"http://127.0.0.1:{pages.server_port}/page?token={agent.token}"
        f"&agent=http://127.0.0.1:{agent.port}&other=http://127.0.0.1:{other.server_port}"
    )
    argv = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}", url]  # fmt: skip
    with (tmp_path / "chromium.txt").open("wb") as log:
        running = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        report = json.loads(wait_until(lambda: SEEN["report"], "a report of the page")[0])
        told = agent.effects()
    finally:
        running.terminate()
        running.wait(DEADLINE_S)
        for server in (pages, other):
            server.shutdown()
            server.server_close()
        agent.target.reap()
    for name, size in report["agent"].items():
        fault.equals(f"a page: bytes read by {name}", 0, size)
    fault.equals("a page: effects", NO_EFFECTS, told)
    assert len(report["agent"]) >= 18
    assert sum(size > 0 for size in report["other"].values()) >= 5, report["other"]
    assert sum(b"effect" in body for body in SEEN["driven"]) >= 4


@pytest.mark.parametrize("is_read_only", [True, False])
def test_what_a_token_may_do(agent: Agent, is_read_only: bool) -> None:
    """Through the commands: who may only read queries and looks; eval says what would allow it."""
    secret = agent.read if is_read_only else agent.token
    job = probing.connect(f"127.0.0.1:{agent.port}", token=secret)
    assert job.query("SELECT 6 * 7 AS x").to_pylist() == [{"x": 42}]
    assert job.backtrace().threads
    with pytest.raises(probing.ProbingError) as caught:
        job.eval("1")
    assert caught.value.code == ("read_only_token" if is_read_only else "eval_not_allowed")
    assert caught.value.exit_code == 4
    assert ("`token`" if is_read_only else "--allow-eval") in caught.value.help
    if not is_read_only:
        assert isinstance(job.set("eval_max_running", "4"), wire.SettingsAnswer)
