"""Where a node server leaves its address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probing.cluster.node import registering
from probing.cluster.node.registering import Registrar
from probing.errors import Unreachable
from probing.rundir.folders import RunDirectory

pytestmark = pytest.mark.anypython


def test_each_job_at_an_address_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store at the usual port is another one with the next job, and one that fails is retried."""
    told: list[Any] = []
    is_away: list[bool] = []

    def tell(host: str, port: int, *, attempt: int, listen: str) -> None:
        told.append((host, port, attempt, listen))
        if is_away and is_away.pop():
            raise Unreachable("the store does not answer")

    monkeypatch.setattr(registering, "register_in_store", tell)
    monkeypatch.setattr(registering, "store_of", lambda pid: ("h", 29500, 0) if pid < 90 else None)
    monkeypatch.setattr(registering, "_STORE_S", 0.0)
    directory, registrar = RunDirectory(tmp_path), Registrar("n:1", "")

    def look(*pids: int) -> int:
        told.clear()
        registrar.look([directory.folder_for(pid, 1) for pid in pids])
        return len(told)

    is_away.append(True)
    assert [look(1, 2), look(1, 2), look(1, 2, 3), look(3), look(3, 99)] == [1, 1, 0, 0, 0]
    assert told == []
    assert [look(4, 5), look(4)] == [1, 0], "the next job, before a look saw none"
    assert [look(), look(4), look(99)] == [0, 1, 0]
