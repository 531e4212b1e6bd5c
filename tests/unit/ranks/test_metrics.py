"""What a scrape has of processes that are told by the same labels."""

from __future__ import annotations

from typing import cast

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from probing.cluster.node.figures import Figures, Found
from probing.cluster.node.metrics import Metrics
from probing.messages.about.job import NodeMember

pytestmark = pytest.mark.anypython


class Told:
    """The figures of processes that are made by hand."""

    def __init__(self, found: list[Found]) -> None:
        self._found = found

    def now(self) -> list[Found]:
        """See `Figures`."""
        return self._found


def found(started_ns: int, rank: int, *, is_alive: bool) -> Found:
    """A process 7, as containers have it."""
    member = NodeMember(
        key=f"7-{started_ns}", rank=rank, local_rank=0, world_size=1, job=None, attempt=0, pid=7,
        host="node", started_ns=started_ns, is_alive=is_alive, state="training", step=1,
        stalled_s=None,
    )  # fmt: skip
    return Found(
        member=member,
        values={"step": float(started_ns)} if is_alive else {},
        phases={"forward": 1.0} if is_alive else {},
    )


def test_processes_of_the_same_labels_are_one_series() -> None:
    """That of the one that runs, else of the newest; others keep theirs."""
    told = [
        found(1, 0, is_alive=False),
        found(2, 0, is_alive=True),
        found(3, 0, is_alive=False),
        found(4, 1, is_alive=False),
        found(5, 1, is_alive=False),
        found(6, 2, is_alive=True),
    ]
    text = Metrics(cast("Figures", Told(told))).text().decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    seen = [(one.name, one.labels["rank"], one.labels.get("phase")) for one in samples]
    assert len(seen) == len(set(seen))
    up = {one.labels["rank"]: one.value for one in samples if one.name == "probing_up"}
    assert up == {"0": 1, "1": 0, "2": 1}
    steps = {one.labels["rank"]: one.value for one in samples if one.name == "probing_step"}
    assert steps == {"0": 2, "2": 6}
