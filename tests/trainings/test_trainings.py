"""Trainings as people write them: what is told of each is what it knows of itself.

A cell of the table that is wrong stands in `wrong.py`, with what is wrong. It must be so
as long as it stands there: who mends it takes it out, and the list only becomes shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.trainings.catalog import TRAININGS, Training
from tests.trainings.cells import Cell
from tests.trainings.live import judge_live
from tests.trainings.table import judge_run, says_why_not
from tests.trainings.wrong import SAYS, SOMETIMES, WRONG

pytestmark = pytest.mark.torch

# Whose commands the default run asks for: what once killed, missed or spoilt a training.
_LIVE = {"optimizer_in_backward", "gan", "rate_per_epoch"}
_CHANCE = "By chance: "
_PHASES = "phases"


def _cases(default: set[str]) -> list[object]:
    return [
        pytest.param(t, id=t.name, marks=[] if t.name in default else [pytest.mark.nightly])
        for t in TRAININGS
    ]


@pytest.mark.parametrize("training", _cases({t.name for t in TRAININGS if t.default}))
def test_the_record_is_what_the_script_knows_of_itself(
    training: Training,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Steps, losses, names and rates are true, and the training is the same to the bit.

    How long phases take is compared at night alone, when no other test needs the processors.
    """
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    is_timed = request.node.get_closest_marker("nightly") is not None
    tries = 3 if is_timed and _PHASES not in WRONG.get(training.name, {}) else 1
    cells = judge_run(training, tmp_path, tries=tries)
    _compare(training, [cell for cell in cells if is_timed or cell.column != _PHASES])


@pytest.mark.nightly
@pytest.mark.parametrize("training", [t for t in TRAININGS if t.default], ids=lambda t: t.name)
def test_phases_take_as_long_as_the_script_says(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of those that are asked by day for the rest."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    cells = judge_run(training, tmp_path, tries=3)
    _compare(training, [cell for cell in cells if cell.column == _PHASES])


@pytest.mark.parametrize("training", _cases(_LIVE))
def test_commands_do_what_they_say_and_no_harm(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attaching late, gradients, a profile, another rate and its undoing: said is what happens."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    cells = judge_live(training, tmp_path, doctor=training.name not in _LIVE)
    _compare(training, says_why_not(training, tmp_path, cells))


def test_the_list_of_what_is_wrong_names_trainings_and_columns_that_there_are() -> None:
    """No entry of `wrong.py` is of a script that is gone."""
    assert set(WRONG) | set(SAYS) <= {training.name for training in TRAININGS}


def _compare(training: Training, cells: Sequence[Cell]) -> None:
    """Fail for what is wrong and not listed, and for what is listed and no longer wrong."""
    listed = WRONG.get(training.name, {})
    for cell in cells:
        is_said = cell.column in SAYS.get(training.name, {})
        is_said &= (training.name, cell.column) not in SOMETIMES
        assert not (is_said and cell.outcome == "right"), (
            f"{cell.column} of {training.name} is right now: take it out of SAYS"
        )
        if cell.outcome == "wrong":
            assert cell.column in listed, f"{cell.column}\nsaid: {cell.said}\ntrue: {cell.true}"
        else:
            must_be_wrong = not listed.get(cell.column, _CHANCE).startswith(_CHANCE)
            assert cell.outcome == "not asked" or not must_be_wrong, (
                f"{cell.column} of {training.name} is right now: take it out of wrong.py"
            )
