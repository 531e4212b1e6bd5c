"""How long the rows of a live table are waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probing.client import providers
from probing.linux import process
from probing.messages.common import LiveRows
from probing.rundir.folders import RunDirectory

pytestmark = pytest.mark.anypython

READY_S, START_S = 3.0, 15.0


@pytest.mark.parametrize(
    ("limit_s", "timeout_s", "expected"),
    [
        pytest.param(30.0, None, (READY_S, START_S), id="its server may have to be loaded"),
        pytest.param(5.0, None, (READY_S, 5.0), id="no longer than the whole query"),
        pytest.param(1.0, None, (READY_S, READY_S), id="never less than it takes to run at all"),
        pytest.param(30.0, 2.0, (2.0, 2.0), id="as said"),
    ],
)
def test_an_agent_that_runs_may_load_its_server(
    limit_s: float,
    timeout_s: float | None,
    expected: tuple[float, float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That it does not run at all is told soon; one that does has as long as an agent to start."""
    limits: list[float] = []
    monkeypatch.setattr(providers, "ready_s", lambda: READY_S)
    monkeypatch.setattr(providers, "start_s", lambda: START_S, raising=False)
    monkeypatch.setattr(providers, "ping", lambda _, timeout_s: limits.append(timeout_s))

    def answer(*_: object, timeout_s: float, **__: object) -> LiveRows:
        limits.append(timeout_s)
        return LiveRows(table="sources", columns=(), rows=())

    monkeypatch.setattr(providers, "live_rows", answer)
    started = process.start_time(os.getpid())
    assert started is not None
    folder = RunDirectory(tmp_path / "home").create_folder(os.getpid(), started)
    found = providers.providers_for(folder, limit_s=limit_s, timeout_s=timeout_s)
    (sources,) = [one for one in found if one.table.full_name == "probing.sources"]
    sources.load(None)
    assert tuple(limits) == expected
