"""`probing web` without a browser: who gets an answer, what is answered, and how it ends."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import probing.page
from probing.errors import PageMissing
from probing.page import page_file
from probing.web.__main__ import main
from probing.web.routes import DATA_ROUTES, PageQuestion
from tests.harness.targets import (
    DEADLINE_S,
    Target,
    clean_env,
    run_command,
    start_program,
    wait_until,
)
from tests.harness.web import Web, needs_page, web

pytestmark = [pytest.mark.anypython, needs_page]

SERVED = "/page/processes"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A process with an agent and no training."""
    folder = tmp_path_factory.mktemp("target")
    started = start_program("idle", home=folder / "home", cwd=folder, PROBING="all")
    started.wait_for_agent()
    yield started
    started.reap()


@pytest.fixture(scope="module")
def served(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The command, about all processes there are."""
    with web(tmp_path_factory.mktemp("web") / "in", target.home) as started:
        yield started


@pytest.mark.fault("N5")
def test_who_gets_an_answer(served: Web) -> None:
    """Only the page of this server, by its own name and with its token."""
    here = f"127.0.0.1:{served.port}"
    cases: list[tuple[int, dict[str, str | None]]] = [
        (200, {}),
        (200, {"Origin": f"http://{here}", "Sec_Fetch_Site": "same-origin"}),
        (200, {"Host": f"localhost:{served.port}"}),
        (401, {"drop": "Authorization"}),
        (401, {"Authorization": "Bearer x"}),
        (401, {"Authorization": "Bearer "}),
        (401, {"drop": "Authorization", "Cookie": f"token={served.token}"}),
        (403, {"Origin": "https://evil.test"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": f"http://127.0.0.1:{served.port + 1}"}),
        (403, {"Origin": f"http://localhost:{served.port}"}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (403, {"Sec_Fetch_Site": "same-site"}),
        (421, {"Host": f"evil.test:{served.port}"}),
        (421, {"Host": "127.0.0.1"}),
    ]
    for status, changed in cases:
        assert served.ask(SERVED, **changed).status == status, changed  # type: ignore[arg-type]
    assert served.ask(f"{SERVED}?token={served.token}", drop="Authorization").status == 401
    question = {"endpoint": "x", "sql": ""}
    assert served.ask("/page/query", question, Content_Type="text/plain").status == 400
    assert served.ask("/v1/status").status == 404


def test_the_document_lets_the_page_do_nothing_else(served: Web) -> None:
    """It has a nonce of its own, and a policy without inline scripts or other addresses."""
    first, second = (served.ask("/", drop="Authorization") for _ in range(2))
    policies = [got.headers["content-security-policy"] for got in (first, second)]
    assert policies[0] != policies[1]
    assert "default-src 'none'" in policies[0]
    assert "require-trusted-types-for 'script'" in policies[0]
    assert not re.search(r"unsafe|\*|https?:", policies[0])
    nonce = re.search(r"script-src 'nonce-([^']+)'", policies[0])
    assert nonce is not None
    text = first.body.decode()
    assert text.count(f'nonce="{nonce[1]}"') == 3
    assert not re.search(r"<script[^>]*>[^<]|style=|\bon\w+=", text)
    assert first.headers["cache-control"] == "no-store"
    assert "server" not in first.headers


def test_it_answers_as_the_commands_do(served: Web, target: Target) -> None:
    """Processes, rows, files, stacks and findings are those of the process."""
    (endpoint,) = served.endpoints()
    assert served.rows(endpoint, "SELECT 6 * 7 AS x, NULL AS y") == [{"x": 42, "y": None}]
    rows = served.rows(endpoint, "SELECT thread_name FROM python.threads")
    assert {"thread_name": "sleeper"} in rows
    question = {"endpoint": endpoint, "sql": "SELECT range AS x FROM range(3)"}
    got = served.ask("/page/query", {**question, "format": "parquet"})
    assert parquet.read_table(io.BytesIO(got.body)).to_pydict() == {"x": [0, 1, 2]}
    twice = {**question, "sql": "SELECT 1 AS x, 2 AS x", "format": "parquet"}
    read = parquet.read_table(io.BytesIO(served.ask("/page/query", twice).body))
    assert read.to_pydict() == {"x": [1], "x_1": [2]}
    refused = served.ask("/page/query", {**twice, "sql": "SELECT INTERVAL 1 DAY AS x"})
    assert refused.status == 400
    assert "Parquet cannot hold this answer" in refused.json()["error"]["message"]
    stacks = served.ask("/page/stacks", {"endpoint": endpoint}).json()
    assert stacks["pid"] == target.pid
    assert "sleeper" in {thread["name"] for thread in stacks["threads"]}
    found = served.ask("/page/findings", {"endpoint": endpoint}).json()
    assert "findings" in found
    assert all("FROM " in sql for sql in found["statements"])
    merged = served.ask("/page/merged", {"endpoint": endpoint}).json()
    assert "sleeper" in {one["thread"] for one in merged["classes"]}
    seen = served.ask("/page/processes").json()
    assert served.rows(endpoint, seen["sql"]) == []
    catalog = served.ask("/page/catalog").json()
    assert "python.steps" in {table["name"] for table in catalog["tables"]}
    assert not [one for one in catalog["questions"] if re.search(r"\$\w", one["sql"])]


def test_a_statement_that_is_wrong_is_told_at_its_place(served: Web) -> None:
    """The error has the offset of the fault, and one that writes is refused."""
    (endpoint,) = served.endpoints()
    wrong = {"endpoint": endpoint, "sql": "SELECT stpe FROM python.steps"}
    got = served.ask("/page/query", wrong)
    assert (got.status, got.json()["error"]["detail"]["position"]) == (400, 7)
    writes = {"endpoint": endpoint, "sql": "CREATE TABLE x AS SELECT 1"}
    assert served.ask("/page/query", writes).status == 403
    cut = {"endpoint": endpoint, "sql": "SELECT range FROM range(100)", "max_rows": 7}
    table = pa.ipc.open_stream(served.ask("/page/query", cut).body).read_all()
    assert table.num_rows == 7
    assert table.schema.metadata[b"probing.truncated"]


def test_nothing_is_changed_unless_that_was_allowed(served: Web) -> None:
    """A page of a command without --allow-eval runs no code and applies no action."""
    (endpoint,) = served.endpoints()
    got = served.ask("/page/eval", {"endpoint": endpoint, "code": "1"})
    assert (got.status, got.json()["error"]["code"]) == (403, "eval_not_allowed")
    action = {"endpoint": endpoint, "asked": {"lr": {"scale": 0.5}}}
    assert served.ask("/page/act", action).status == 403
    assert served.ask("/page/processes").json()["may_eval"] is False


def test_only_what_is_seen_is_asked(served: Web) -> None:
    """An endpoint that is not in the list leads nowhere, whatever it could mean elsewhere."""
    routes = [route.path for route in DATA_ROUTES if route.request is PageQuestion]
    assert len(routes) > 8
    for endpoint in ("1", "127.0.0.1:1", "/etc", ""):
        for route in routes:
            assert served.ask(route, {"endpoint": endpoint}).status == 404, endpoint


def test_a_statement_ends_when_the_page_goes_away(served: Web) -> None:
    """The worker of a question that nobody waits for any more is free for the next one."""
    (endpoint,) = served.endpoints()
    endless = "SELECT sum(a.range * b.range) FROM range(3000000) a, range(3000000) b"
    body = json.dumps({"endpoint": endpoint, "sql": endless}).encode()
    head = (
        f"POST /page/query HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
        f"Authorization: Bearer {served.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    for _ in range(8):  # more than there are workers
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(head + body)
    assert served.rows(endpoint, "SELECT 1 AS x") == [{"x": 1}]


def test_the_token_is_told_nowhere(served: Web) -> None:
    """No command line has it, and nothing but the link is printed."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        assert served.token.encode() not in words
    assert served.errors == ""
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=[0-9a-f]{64}", served.link)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_it_ends_quietly(target: Target, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, and being told to end, are no failure and worth no word."""
    with web(tmp_path / "in", target.home, str(target.pid)) as started:
        (endpoint,) = started.endpoints()
        started.rows(endpoint, "SELECT 1 AS x")
        assert started.end(number) == 0
        assert started.errors == ""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", started.port))


def test_it_ends_with_who_reads_its_link(tmp_path: Path) -> None:
    """As at the other end of ssh: without a terminal no signal comes when that is gone."""
    argv = [sys.executable, "-m", "probing", "web"]
    with subprocess.Popen(
        argv, env=clean_env(tmp_path / "home"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        try:
            assert started.stdout.readline().startswith(b"http://127.0.0.1:")
            started.stdout.close()
            assert started.wait(DEADLINE_S) == 0
        finally:
            started.kill()


def test_it_waits_for_processes_to_come(tmp_path: Path) -> None:
    """Without any there is a page, which shows the first that comes."""
    home = tmp_path / "home"
    with web(tmp_path / "in", home) as started:
        assert started.endpoints() == []
        late = start_program("idle", home=home, cwd=tmp_path, PROBING="all")
        try:
            wait_until(started.endpoints, "a process")
        finally:
            late.reap()


def test_who_has_ended_is_there_with_its_record(target: Target, tmp_path: Path) -> None:
    """A process that was killed before anybody looked is listed, and tells how it has ended."""
    killed = start_program("idle", "named", home=target.home, cwd=tmp_path, PROBING="all")
    killed.wait_for_agent()
    folder = str(killed.folder.path)
    killed.kill()
    killed.reap()
    with web(tmp_path / "in", target.home) as started:
        (seen,) = wait_until(lambda: started.ask(SERVED).json()["ended"], "the ended one")
        known = wait_until(lambda: started.ask(SERVED).json()["ended"][0]["problems"], "its end")
        assert "ended without a word" in known[0]
        assert (seen["endpoint"], seen["pid"], seen["state"]) == (folder, killed.pid, "dead")
        assert seen["command"].endswith("idle.py named")
        assert folder not in started.endpoints()
        told = started.ask("/page/about", {"endpoint": folder}).json()
        assert (told["command"], told["doing"]) == (seen["command"], None)
        assert "ended without a word" in told["problems"][0]
        assert started.rows(folder, "SELECT count(*) AS n FROM python.steps") == [{"n": 0}]
        assert started.ask("/page/merged", {"endpoint": folder}).status == 200


def test_who_is_not_there_is_told_at_once(target: Target) -> None:
    """A pid of nobody is the error of every other command."""
    done = run_command("web", "999999999", cwd=target.cwd, env=target.env)
    assert (done.returncode, done.stdout) == (3, "")
    assert "999999999" in done.stderr


def test_a_port_that_is_taken_is_told(target: Target) -> None:
    """By one sentence, with what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_command("web", "--port", port, cwd=target.cwd, env=target.env)
    assert (done.returncode, done.stdout) == (3, "")
    assert "--port 0" in done.stderr


def test_without_a_page_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An installation that was made without a registry says why it has none."""
    monkeypatch.setattr(probing.page, "_STATIC", tmp_path)
    monkeypatch.setattr(probing.page, "_NOTE", tmp_path / "missing.txt")
    (tmp_path / "missing.txt").write_text("it was built without its page: no registry")
    with pytest.raises(PageMissing, match="no registry"):
        page_file("page.js")
    assert main([]) == PageMissing.exit_code
    told = capsys.readouterr().err
    assert "no registry" in told
    assert "pip install" in told
