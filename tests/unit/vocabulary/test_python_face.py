"""What the Python face says of arguments that it cannot take."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.actions import Clip, Lr
from probing.errors import UsageError
from probing.messages.about.act import request_for
from tests.harness.cards import card_of
from tests.harness.sql_fixtures import recorded_folder

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize("asked", ["lr", None, 5])
def test_what_is_no_action_is_told_with_those_there_are(asked: Any) -> None:
    """And how one is written."""
    with pytest.raises(UsageError, match="act takes an action, and") as caught:
        request_for(asked, 1.0)
    assert "Lr, Clip, Checkpoint" in caught.value.help


@pytest.mark.parametrize("asked", [Lr(value=math.nan), Lr(scale=math.inf), Clip(max_norm=math.nan)])
def test_a_figure_that_is_not_finite_is_refused(asked: Lr | Clip) -> None:
    """Before it is sent."""
    with pytest.raises(UsageError, match=r"takes a finite number, and (nan|inf) is none"):
        request_for(asked, 1.0)


def test_many_are_named_by_one_word_or_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is one endpoint, and none at all is a mistake."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path))
    with pytest.raises(probing.ProbingError, match="there is no process for all"):
        probing.connect_many("all")
    for nothing in ([], "", ["all", " "]):
        with pytest.raises(UsageError, match="name at least one"):
            probing.connect_many(nothing)


def test_a_statement_is_a_text() -> None:
    """Anything else is told."""
    with pytest.raises(UsageError, match="query takes a statement as a text, and 5 is none"):
        probing.connect("1").query(5)  # type: ignore[arg-type]


def test_a_note_is_told_once(tmp_path: Path) -> None:
    """However often the question was asked; it is not told of the answers that follow."""
    folder = recorded_folder(tmp_path)
    folder.write_card(card_of(folder.pid, folder.start_time))
    os.truncate(folder.ring("steps"), folder.ring("steps").stat().st_size // 2)
    run = probing.connect(str(folder.path))
    for _ in range(3):
        run.query("SELECT max(step) AS n FROM python.steps").to_pylist()
        run._query_plain("SELECT max(step) AS n FROM python.steps", timeout_s=60)
        run._notes.append(run._notes[0])  # as what asks for stacks does
    assert len(run._notes) == 1  # who never reads them keeps no more
    (note,) = run.notes()
    assert "python.steps" in note
    run.query("SELECT count(*) AS n FROM python.torch_trace").to_pylist()
    assert run.notes() == []
