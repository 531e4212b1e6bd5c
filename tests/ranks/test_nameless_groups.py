"""Process groups that a script has made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from tests.harness.targets import Target

pytestmark = pytest.mark.torch


def test_a_group_without_a_name_is_recorded_as_such(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is asked for and raises; the other groups are recorded all the same."""
    target = program("nameless_groups", GLOO_SOCKET_IFNAME="lo")
    target.wait_for_output("done")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    assert process.status().problems == ()
    sql = (
        "SELECT process_group, count(*) AS n, count(error) AS e FROM python.collectives GROUP BY 1"
    )
    found = {row["process_group"]: (row["n"], row["e"]) for row in process.query(sql).to_pylist()}
    assert found == {"0": (4, 0), "?": (4, 4)}
