"""What becomes of the values of plugins' live tables and of scripts' rows in their columns."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from probing.agent.extending.plugins import PluginAction, PluginLive
from probing.agent.extending.values import Values
from probing.agent.live.encode import encode_live
from probing.errors import ActRefused, PluginFailed
from probing.messages.codec import decode
from probing.messages.common import LiveRows
from probing.plugins import Action, LiveTable, Plugin, Question, _load
from probing.ring.arrow_tables import live_to_arrow
from probing.script.own_tables import declaration
from probing.settings import Settings

COLUMNS = {"a": int, "b": float, "c": bool, "s": str}
FITS: list[tuple[str, Any, Any]] = [
    ("a", np.int64(1), 1),
    ("a", 3.0, 3),
    ("b", np.float32(0.5), 0.5),
    ("b", np.float64(0.5), 0.5),
    ("b", True, 1.0),
    ("c", np.bool_(True), True),
    ("c", 1, True),
    ("s", np.str_("Grüße"), "Grüße"),
    ("s", "x" * 100, "x" * 100),
]
DOES_NOT: list[tuple[str, Any, str]] = [
    ("a", "3", "a is an int, and was given a str"),
    ("a", float("nan"), "a is an int, and was given a number that is too large or has a fraction"),
    ("a", 2**70, "a is an int, and was given a number that is too large or has a fraction"),
    ("b", "n/a", "b is a float, and was given a str"),
    ("b", np.complex64(1j), "b is a float, and was given a complex"),
    ("c", 5, "c is a bool, and was given a number"),
    ("s", 5, "s is a str, and was given a number"),
    ("s", np.ones(2), "s is a str, and was given a ndarray"),
]


def live(rows: Any) -> PluginLive:
    """A live table of a plugin's, with such rows."""
    asked = LiveTable(name="gpu", columns=COLUMNS, doc="", compute=lambda: rows)
    made = declaration("gpu", COLUMNS, doc="", rows=1, text_bytes=64, origin="plugin x").declared
    columns = tuple(column for column in made.columns if column.name in COLUMNS)
    return PluginLive(asked, made._replace(kind="live", columns=columns), "x")


@pytest.mark.anypython
def test_values_of_a_live_table_are_told_as_its_columns_have_them() -> None:
    """Those of numpy, too; what fits into no column is NULL, and a note says how many."""
    rows = [{name: value} for name, value, _ in [*FITS, *DOES_NOT]]
    table = live([*rows, {"a": None, "more": 1}])
    answer = decode(LiveRows, encode_live(table.rows(), Settings()))
    told = live_to_arrow(answer, table.table).to_pylist()
    nothing = dict.fromkeys(COLUMNS)
    assert told[: len(FITS)] == [{**nothing, name: value} for name, _, value in FITS]
    assert told[len(FITS) :] == [nothing] * (len(DOES_NOT) + 1)
    assert answer.note == f"8 values could not be stored, the newest: {DOES_NOT[-1][2]}"
    assert live([{"a": 1}]).rows().note is None


@pytest.mark.anypython
@pytest.mark.parametrize(("name", "value", "why"), DOES_NOT)
def test_a_value_that_does_not_fit_is_named(name: str, value: Any, why: str) -> None:
    """With what its column is and what it was."""
    note = live([{name: value}]).rows().note
    assert note == f"1 value could not be stored, the newest: {why}"


@pytest.mark.anypython
def test_a_row_that_is_none_is_the_plugins_failure() -> None:
    """Not one of who asks."""
    with pytest.raises(PluginFailed):
        live([7]).rows()


@pytest.mark.torch
def test_a_tensor_that_cannot_be_read_is_null() -> None:
    """As one inside of vmap, which stands for many; those that can be are read as before."""
    import torch

    values, told = Values(None), []

    def look(x: Any) -> Any:
        told.append([values.told(name, kind, x.sum()) for name, kind in (("x", "float64"),) * 4])
        return x.sum()

    torch.vmap(look)(torch.ones(3, 2))
    assert told == [[None] * 4]
    why = "x is a float, and was given a tensor that cannot be read"
    assert values.note == f"4 values could not be stored, the newest: {why}"
    assert values.told("x", "float64", torch.tensor(0.5)) == 0.5
    assert values.told("n", "int64", torch.tensor([2])) == 2
    assert values.told("n", "int64", torch.tensor(0.5)) is None
    assert values.note is not None
    assert values.note.endswith("n is an int, and was given a tensor of another type")


class Point:
    """An entry point whose plugin is there."""

    name = "bad"

    def __init__(self, plugin: object) -> None:
        self.value, self._plugin = "m:plugin", plugin

    def load(self) -> object:
        """The plugin."""
        return self._plugin


TABLE = LiveTable(name="a", columns={"x": int}, doc="", compute=list)
QUESTION = Question(name="q", doc="", sql="SELECT 1")


@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        (Plugin(tables=(TABLE), questions=(QUESTION,)), "its tables are a LiveTable"),  # type: ignore[arg-type]
        (Plugin(questions=QUESTION), "its questions are a Question, and not a tuple"),  # type: ignore[arg-type]
        (Plugin(actions=(QUESTION,)), "it has a Question that is no Action"),  # type: ignore[arg-type]
        (Plugin(tables=(TABLE,), questions=(QUESTION,)), None),
    ],
)
def test_a_plugin_without_a_comma_is_told_as_such(plugin: Plugin, says: str | None) -> None:
    """What is no tuple of what it should be of is refused as it is loaded, and harms no other."""
    found = _load(Point(plugin))  # type: ignore[arg-type]
    assert (found.problem or "").startswith(says or "")
    assert found.plugin == (plugin if says is None else Plugin())


def test_what_a_handler_of_the_script_raises_is_the_scripts() -> None:
    """A time limit that comes while a plugin's action is at work ends what it is to end."""

    def ring(*_: object) -> None:
        raise TimeoutError("the script's own limit")

    def apply(names: Any, arguments: Any) -> None:
        if not names:
            raise KeyError("model")
        signal.raise_signal(signal.SIGUSR1)

    action = PluginAction(Action(name="a", doc="", apply=apply), {})
    scene = SimpleNamespace(training=SimpleNamespace(names=lambda: {"model": 1}))
    before = signal.signal(signal.SIGUSR1, ring)
    try:
        with pytest.raises(TimeoutError, match="own limit"):
            action.apply(scene)
    finally:
        signal.signal(signal.SIGUSR1, before)
    scene.training.names = dict
    with pytest.raises(ActRefused, match="a failed: KeyError"):
        action.apply(scene)
