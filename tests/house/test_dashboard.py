"""The dashboard for Grafana: one that can be imported, by what is known of its rules."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from tests.harness.targets import ROOT

pytestmark = pytest.mark.anypython

_BOARD: dict[str, Any] = json.loads((ROOT / "examples/prometheus/dashboard.json").read_text())
_WIDTH = 24
"""Columns of Grafana's grid."""


def test_it_can_be_imported_into_any_grafana() -> None:
    """It has a name that is valid, and asks the Prometheus that is chosen on it, no other."""
    assert re.fullmatch(r"[\w-]{1,40}", _BOARD["uid"])
    assert "id" not in _BOARD  # which is another one in each Grafana
    assert 36 <= _BOARD["schemaVersion"] <= 42
    source, *others = _BOARD["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    chosen = {"type": "prometheus", "uid": f"${{{source['name']}}}"}
    assert [one["datasource"] for one in (*others, *_BOARD["panels"])] == [chosen] * (
        len(others) + len(_BOARD["panels"])
    )


def test_its_panels_lie_side_by_side() -> None:
    """Each has a number and a title of its own, and a place on the grid that no other has."""
    panels = _BOARD["panels"]
    for key in ("id", "title"):
        assert len({panel[key] for panel in panels}) == len(panels)
    taken = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x, y in itertools.product(range(panel["gridPos"]["w"]), range(panel["gridPos"]["h"]))
    ]
    assert len(set(taken)) == len(taken)
    assert {x for x, _ in taken} == set(range(_WIDTH))


def test_its_queries_use_the_variables_that_there_are() -> None:
    """And each query of a panel has a letter of its own."""
    known = {one["name"] for one in _BOARD["templating"]["list"]}
    for panel in _BOARD["panels"]:
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)
        for target in panel["targets"]:
            assert {"job", "rank"} == set(re.findall(r"\$(\w+)", target["expr"])) <= known
