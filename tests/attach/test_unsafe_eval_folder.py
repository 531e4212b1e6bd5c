"""An unsafe eval leaves no run folder, whatever others do to it meanwhile."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.attach import unsafe_eval
from probing.errors import AttachFailed
from probing.rundir.folders import RunDirectory, write_private
from probing.stacks import py_spy

_VALUES = {"output": "", "value": "2", "error": None, "error_type": None, "omitted": 0}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A run directory; this process is the one that is asked, and says 2 to everything."""
    home = tmp_path / "home"
    thread = SimpleNamespace(thread_id=7, holds_gil=True)

    def answer(_order: object) -> dict[str, Any]:
        (script,) = home.glob(f"{os.getpid()}-*/eval-*.py")
        result = script.with_name(f"{script.name}.result")
        result.write_text(json.dumps({**_VALUES, "duration_s": 0.0}))
        return {"reason": ""}

    monkeypatch.setattr(unsafe_eval, "find_obstacle", lambda _pid: None)
    monkeypatch.setattr(py_spy, "take", lambda *_: [thread])
    monkeypatch.setattr(unsafe_eval, "directory_of", lambda _pid: RunDirectory(home))
    monkeypatch.setattr(unsafe_eval, "ask_helper", answer)
    return home


def test_one_of_two_at_once_makes_the_folder_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one takes it away as it ends, before anything of this one is in it."""
    taken: list[Path] = []

    def write(path: Path, data: bytes) -> None:
        if not taken:
            path.parent.rmdir()
        taken.append(path)
        write_private(path, data)

    monkeypatch.setattr(unsafe_eval, "write_private", write)
    assert unsafe_eval.eval_in_holder(os.getpid(), "1 + 1", limit_s=1).value == "2"
    assert len(taken) == 2
    assert not list(home.iterdir())


def test_no_folder_stays_where_there_is_no_room(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written of the code goes with it."""

    def write(path: Path, data: bytes) -> None:
        path.write_bytes(data[:7])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(unsafe_eval, "write_private", write)
    with pytest.raises(AttachFailed, match="No space left"):
        unsafe_eval.eval_in_holder(os.getpid(), "1 + 1", limit_s=1)
    assert not list(home.iterdir())
