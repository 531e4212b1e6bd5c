"""Run folders that are made by hand, and a history to export them to: in a folder or a store."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing.history.query import History
from probing.history.stores.objects import Store, open_store
from probing.rundir.folders import ProcessFolder, RunDirectory
from tests.harness.cards import card_of
from tests.harness.late import late
from tests.harness.ring_writer import save_names
from tests.harness.s3_server import Line, make_bucket, s3_server

NOBODY = 2**22 + 1
"""The kernel gives no such number: a process that has ended."""
STORED = "all runs/it's [a]* 100%25"
"""Where in a bucket a history is; what is special in a name, a pattern or an address is in it."""
_numbers = itertools.count(1)


@pytest.fixture
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where a history will be; what is special in a name or a pattern is in it."""
    return Path(tmp_path, getattr(request, "param", "it's [a] history*"))


@pytest.fixture
def ended(tmp_path: Path) -> Callable[..., ProcessFolder]:
    """Makes the run folder of a process that has ended."""
    return functools.partial(ended_in, tmp_path)


def ended_in(place: Path, start_time: int = 77, **card: Any) -> ProcessFolder:
    """The run folder of a process that has ended, in a home there."""
    folder = RunDirectory(place / "home").create_folder(NOBODY, start_time)
    folder.write_card(card_of(NOBODY, start_time, **card))
    save_names(folder.names, ["encoder", "decoder", "head", "Block"])
    return folder


@pytest.fixture
def ask(root: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Rows of the history."""
    return lambda sql: History(str(root)).query(sql, timeout_s=60).to_pylist()


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    """A server of objects, for all tests of a module."""
    late("moto", reason="of tests/history.txt")
    with s3_server() as line:
        yield line


@pytest.fixture
def url(
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> str:
    """A place in a bucket of its own; its spool is in the folder of the test."""
    line.is_down, line.cut = False, (b"", 0)
    name = f"bucket-{next(_numbers)}"
    make_bucket(line, name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PROBING_HISTORY_SPOOL", str(tmp_path / "spool"))
    return f"s3://{name}/{getattr(request, 'param', STORED)}"


@pytest.fixture
def store(url: str) -> Store:
    """The store at that place."""
    return open_store(url)


@pytest.fixture(scope="module")
def no_threads_of_pyiceberg() -> Iterator[None]:
    """End the threads by which it reads."""
    yield
    concurrent = importlib.import_module("pyiceberg.utils.concurrent")
    if (executor := concurrent.ExecutorFactory._instance) is not None:
        executor.shutdown()
        concurrent.ExecutorFactory._instance = None
