"""What the record of a process that has ended says of an action whose answer never came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probing.client.lost import came_of_action
from probing.messages.about.act import Checkpoint, Lr, request_for
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.tables import ACTION_STATES, ACTIONS
from tests.harness.cards import card_of
from tests.harness.ring_writer import RingWriter, save_names

pytestmark = pytest.mark.anypython

_TEXTS = ["lr", "scale=0.1", "scale=0.5", "who asked has gone"]
_SENT_NS = 1000
_ASKED = request_for(Lr(scale=0.1), None)
_UNKNOWN = "whether action {} was applied is not known: by its record it was asked for, and had not"


@pytest.fixture
def folder(tmp_path: Path) -> ProcessFolder:
    """What a process has left that nobody asked for anything."""
    found = RunDirectory(tmp_path).folder_for(77, 1)
    found.path.mkdir()
    found.write_card(card_of(77, 1))
    save_names(found.names, _TEXTS)
    return found


class _Record:
    """The rows of python.actions."""

    def __init__(self, folder: ProcessFolder) -> None:
        self._folder = folder
        self._ring = RingWriter(ACTIONS, capacity=64)

    def asked(self, number: int, *, scale: int = 2, start_ns: int = 2000, name: int = 1) -> int:
        """One that is asked for; returns its row."""
        row = self._ring.open(action_id=number, name=name, arguments=scale, start_ns=start_ns)
        self._ring.save(self._folder.ring(ACTIONS.name))
        return row

    def ended(self, row: int, state: str, **told: Any) -> None:
        """It came to its end."""
        self._ring.close(row, state=ACTION_STATES.index(state), **told)
        self._ring.save(self._folder.ring(ACTIONS.name))


def test_an_action_is_applied_not_applied_or_that_is_not_known(folder: ProcessFolder) -> None:
    """By its row: none is made where nothing was done, and one is open until it is told."""
    assert came_of_action(folder, _ASKED, _SENT_NS) == (
        "the action was not applied, nor is it on record"
    )
    record = _Record(folder)
    row = record.asked(3)
    assert came_of_action(folder, _ASKED, _SENT_NS).startswith(_UNKNOWN.format(3))
    record.ended(row, "in force", step=12)
    assert came_of_action(folder, _ASKED, _SENT_NS) == "action 3 was applied before step 12"
    record.ended(row, "refused", notes=4)
    assert came_of_action(folder, _ASKED, _SENT_NS) == (
        "action 3 was not applied (who asked has gone)"
    )


def test_others_are_left_out(folder: ProcessFolder) -> None:
    """Those of before, of another kind, and with other arguments; of a later version, none is."""
    record = _Record(folder)
    record.ended(record.asked(1, start_ns=500), "done", step=1)
    record.ended(record.asked(2, scale=3), "done", step=2)
    checkpoint = request_for(Checkpoint(path="a.pt"), None)
    for asked in (_ASKED, checkpoint):
        assert "not applied" in came_of_action(folder, asked, _SENT_NS)
    assert came_of_action(folder, None, _SENT_NS) == "action 2 was applied before step 2"
    record.asked(3)
    assert came_of_action(folder, None, _SENT_NS).endswith("several that it may be")
    assert came_of_action(folder, _ASKED, _SENT_NS).startswith(_UNKNOWN.format(3))


def test_a_row_without_texts_may_be_it(folder: ProcessFolder) -> None:
    """There was no room for its name."""
    record = _Record(folder)
    record.ended(record.asked(1, name=0, scale=0), "done", step=4)
    assert came_of_action(folder, _ASKED, _SENT_NS) == "action 1 was applied before step 4"


@pytest.mark.parametrize("lost", ["folder", "room", "ring"])
def test_nothing_is_claimed_without_a_record(folder: ProcessFolder, lost: str) -> None:
    """It is gone, could not be written, or is damaged."""
    if lost == "folder":
        (folder.path / "card.json").unlink()
    elif lost == "room":
        full = f"{ACTIONS.full_name} cannot be written: no space"
        folder.write_card(card_of(77, 1, problems=(full,)))
    else:
        folder.ring(ACTIONS.name).write_bytes(b"nothing")
    told = came_of_action(folder, _ASKED, _SENT_NS)
    assert told == "whether the action was applied is not known: its record cannot be read"
