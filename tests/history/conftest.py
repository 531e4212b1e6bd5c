"""Run folders that are made by hand, and a history to export them to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probing.history.query import History
from probing.rundir.folders import ProcessFolder, RunDirectory
from tests.harness.cards import card_of
from tests.harness.ring_writer import save_names

NOBODY = 2**22 + 1
"""The kernel gives no such number: a process that has ended."""


@pytest.fixture
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where a history will be; what is special in a name or a pattern is in it."""
    return Path(tmp_path, getattr(request, "param", "it's [a] history*"))


@pytest.fixture
def ended(tmp_path: Path) -> Callable[..., ProcessFolder]:
    """Makes the run folder of a process that has ended."""

    def make(start_time: int = 77, **card: Any) -> ProcessFolder:
        folder = RunDirectory(tmp_path / "home").create_folder(NOBODY, start_time)
        folder.write_card(card_of(NOBODY, start_time, **card))
        save_names(folder.names, ["encoder", "decoder", "head", "Block"])
        return folder

    return make


@pytest.fixture
def ask(root: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Rows of the history."""
    return lambda sql: History(str(root)).query(sql, timeout_s=60).to_pylist()
