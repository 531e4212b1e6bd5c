"""What is asked of an agent of an older version, which refuses what it does not know."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from probing.cluster.ranks.slow.gather_times import _rows
from probing.diagnosis.hang.seen.record import record_of
from probing.diagnosis.memory.leaking import _added_up, _history
from probing.errors import NotAnswering, ProbingError, SqlError
from probing.messages import common as wire
from tests.unit.memory.leak_samples import HEALTHY

pytestmark = pytest.mark.anypython

NOT_KNOWN = SqlError("there is no such column")
ROWS = [{"steps": [{"step": 7}]}]


def process(error: ProbingError, *unknown: str) -> Any:
    """One that answers a query which has none of these words, and refuses any other."""

    def query(sql: str) -> Any:
        if any(word in sql for word in unknown):
            raise error
        return SimpleNamespace(to_pylist=lambda: ROWS)

    return SimpleNamespace(query=query)


def record(asked: Any) -> Any:
    """The record that `hang` reads, and what it notes."""
    notes: list[str] = []
    return record_of(asked, notes)["steps"], notes


def phases(asked: Any) -> Any:
    """What `leak` tells of the phases of the steps that it has watched, and what it notes."""
    told = _added_up(asked, HEALTHY, "phase")
    return told.by, told.phases, told.notes[-1].partition(":")[0]


@pytest.mark.parametrize(
    ("ask", "unknown", "answer"),
    [
        (lambda asked: _rows(asked, {"first": 1, "last": 2, "number": 2}), "python.devices", ROWS),
        (lambda asked: _rows(asked, {"first": 1, "last": 2, "number": 2}), "collectives", ROWS),
        (record, "python.devices", (ROWS[0]["steps"], [])),
        (_history, "python.", ([], ("there is no record of memory to look back at",))),
        (
            phases,
            "python.",
            ("phase", (), "the phases of these steps are not on record"),
        ),
    ],
    ids=["stragglers", "stragglers without collectives", "hang", "leak", "leak by phase"],
)
def test_an_older_agent_tells_what_it_knows(
    ask: Callable[[Any], Any], unknown: str, answer: object
) -> None:
    """On this machine and behind HTTP, where its refusal comes as an error of another process."""
    for error in (NOT_KNOWN, wire.decode_error(wire.encode_error(NOT_KNOWN))):
        assert ask(process(error, unknown)) == answer


def test_what_is_no_matter_of_versions_is_asked_once() -> None:
    """One that does not answer is not asked for less."""
    silent = wire.decode_error(wire.encode_error(NotAnswering("rank 3", 1.0)))
    for ask in (lambda asked: _rows(asked, {"first": 1, "last": 2, "number": 2}), _history):
        with pytest.raises(ProbingError) as told:
            ask(process(silent, "python."))
        assert told.value is silent
    assert record(process(silent, "python.devices")) == ([], [silent.message])
