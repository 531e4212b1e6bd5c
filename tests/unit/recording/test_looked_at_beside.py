"""Looks at a training that was found to stand still, and may have gone on just then."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.live import checksums, question as asked
from probing.agent.live.question import WENT_ON, LiveQuestion
from probing.agent.recording.no_training import NoTraining

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize("moves", [False, True], ids=["still", "went on"])
def test_it_is_looked_at_if_it_stands_still_once_its_way_is_closed(
    moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it may change what is looked at; the answer says what has happened."""
    training, taken = NoTraining(), list[bool]()
    monkeypatch.setattr(training, "is_moving", lambda: moves)
    monkeypatch.setattr(asked, "_STILL_S", 0.1)
    monkeypatch.setattr(checksums, "_wait", lambda *_: checksums._STILL)

    def take(*_: object, **_how: object) -> Any:
        taken.append(training.safe_points.closed)
        return SimpleNamespace(rows=())

    look = SimpleNamespace(found=None, reason=None)
    module = SimpleNamespace(ChecksumLook=lambda *_, **_how: look, take_checksums=take)
    monkeypatch.setitem(sys.modules, "probing.agent.sources.model.checksums", module)
    question = LiveQuestion(table="python.parameter_checksums", training=training, wait_s=1.0)
    recording: Any = None
    rows = checksums._look(recording, question)
    assert taken == ([] if moves else [True])
    assert rows.note == (WENT_ON if moves else checksums._STILL)
    assert not training.safe_points.closed
