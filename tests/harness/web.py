"""`probing web` as a process, and requests to it as a page sends them."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tests.harness.targets import DEADLINE_S, ROOT, Target, clean_env, start_program, wait_until

REST_S = 0.1
"""How long steps of both ranks rest: they go on for minutes, beside the browser that is tested."""
_STATIC = ROOT / "probing" / "page" / "static"
_NOTE = _STATIC / "missing.txt"
needs_page = pytest.mark.skipif(
    not (_STATIC / "page.js").exists(),
    reason=_NOTE.read_text() if _NOTE.exists() else "`sh examples/venv.sh dev` builds the page",
)


class Got(NamedTuple):
    """An answer.

    Attributes:
        headers: By their names in small letters.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Its body, where that is JSON."""
        return json.loads(self.body)


class Web:
    """The command, serving.

    Attributes:
        link: What it has printed.
        process: The server itself: the command becomes it.
    """

    def __init__(self, folder: Path, home: Path, *words: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        argv = [sys.executable, "-m", "probing", "web", *words]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                argv, cwd=folder, env=clean_env(home), stdin=subprocess.DEVNULL, stdout=out,
                stderr=err,
            )  # fmt: skip
        wait_until(self._has_told, "a link")
        self.link = self._out.read_text().strip()
        self.port = int(self.link.split(":")[2].partition("/")[0])
        self.token = self.link.partition("#token=")[2]

    @property
    def errors(self) -> str:
        """What it has written to stderr."""
        return self._err.read_text()

    def ask(self, path: str, body: object = None, *, drop: str = "", **headers: str | None) -> Got:
        """Send what the page would send.

        Args:
            drop: A header to leave out.
            headers: What is different, with ``_`` for ``-``.
        """
        here = f"127.0.0.1:{self.port}"
        sent = {"Host": here, "Authorization": f"Bearer {self.token}"}
        if body is not None:
            sent |= {"Content-Type": "application/json", "Origin": f"http://{here}"}
        sent |= {name.replace("_", "-"): v for name, v in headers.items() if v is not None}
        sent.pop(drop, None)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body).encode()
            method = "GET" if body is None else "POST"
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Got(answer.status, names, answer.read())

    def endpoints(self) -> list[str]:
        """How the processes that it sees are asked."""
        seen = self.ask("/page/processes").json()["processes"]
        return [one["endpoint"] for one in seen]

    def rows(self, endpoint: str, sql: str) -> list[dict[str, Any]]:
        """The rows of a statement."""
        got = self.ask("/page/query", {"endpoint": endpoint, "sql": sql})
        assert got.status == 200, got.body
        rows: list[dict[str, Any]] = pa.ipc.open_stream(got.body).read_all().to_pylist()
        return rows

    def end(self, number: int = signal.SIGINT) -> int:
        """End it by a signal; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def _has_told(self) -> bool:
        assert self.process.poll() is None, self._err.read_text()
        return self._out.read_text().endswith("\n")


@contextlib.contextmanager
def web(folder: Path, home: Path, *words: str) -> Iterator[Web]:
    """The command, ended at the end."""
    folder.mkdir()
    started = Web(folder, home, *words)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait(DEADLINE_S)


@contextlib.contextmanager
def two_ranks(folder: Path, *, job: str) -> Iterator[list[Target]]:
    """Both ranks of a training whose names are markup, each fifty steps on."""
    started = [
        start_program(
            "hostile_names", str(REST_S), home=folder / "home", cwd=folder, PROBING="1",
            RANK=str(rank), PROBING_JOB=job, WORLD_SIZE="2", PROBING_SAMPLING_HZ="10",
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for one in started:
            one.wait_for_step(50)
        yield started
    finally:
        for one in started:
            one.reap()
