"""Compactions of a store: whoever is killed and whoever asks meanwhile, each row is there once."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from probing.errors import HistoryBusy
from probing.history.compaction.keep import Keep
from probing.history.query import History
from probing.history.stores import holding
from probing.history.stores.bucket import bucket_of
from probing.history.stores.holding import held
from probing.history.stores.objects import Store
from probing.rundir.folders import ProcessFolder
from tests.harness.ring_writer import RingWriter, trace_values, trace_writer

Made = Callable[..., ProcessFolder]
COMPACTION = "_probing/compaction"
CALLS = """SELECT sum(coalesce(calls, 1)) AS calls, round(sum(coalesce(total_s, duration)), 9) AS s,
  round(median(duration), 9) AS median_s, max(allocated_bytes) AS bytes, count(seq) AS numbers
FROM torch_trace"""


class Killed(BaseException):
    """Whoever gets it does nothing more."""


@contextlib.contextmanager
def killed_at(store: Store, number: int) -> Iterator[None]:
    """Have whoever changes a store be gone before a change, counted from 1, and all later ones."""
    changes = itertools.count(1)

    def until_killed(change: Callable[..., None]) -> Callable[..., None]:
        def asked(*words: Any) -> None:
            if next(changes) >= number:
                raise Killed
            change(*words)

        return asked

    with pytest.MonkeyPatch.context() as patch:
        for name in ("put", "copy", "_remove"):
            patch.setattr(store, name, until_killed(getattr(store, name)))
        with contextlib.suppress(Killed):
            yield


def record(folder: ProcessFolder, writer: RingWriter, rows: int) -> None:
    """Rows of old days, several calls of a module in each step, each as long as the others."""
    for _ in range(rows):
        values = trace_values(writer.written + 1)
        changed = {"step": (writer.written + 1) // 8, "stage": 0, "duration_ns": 250_000_000}
        writer.write(**{**values, **changed})
    writer.save(folder.ring("torch_trace"))


@pytest.mark.parametrize(
    ("keep", "stride"),
    [
        pytest.param(Keep(), 1, marks=pytest.mark.nightly, id="as they are"),
        pytest.param(Keep(whole_days=1), 1, marks=pytest.mark.nightly, id="rolled up"),
        pytest.param(Keep(whole_days=1), 3, id="rolled up, some"),
    ],
)
def test_a_kill_before_any_change_costs_nothing(
    ended: Made, url: str, store: Store, monkeypatch: pytest.MonkeyPatch, *, keep: Keep, stride: int
) -> None:
    """Before each one, or some, in turn: the next goes on, and nothing is left of those before."""
    monkeypatch.setattr(holding, "_LEASE_NS", -1)  # the mark of who was killed is old at once
    place, folder, writer = bucket_of(url, os.environ), ended(), trace_writer(capacity=4096)
    died = 0
    for number in itertools.count(1, stride):
        record(folder, writer, 8)
        place.export(folder)
        is_done = False
        with killed_at(store, number):
            done = place.compact(keep)
            is_done = True
        (row,) = History(url).query(CALLS, timeout_s=60).to_pylist()
        rows = writer.written
        assert (row["calls"], row["s"], row["median_s"]) == (rows, rows / 4, 0.25), number
        assert row["bytes"] == rows << 20
        if is_done:
            break
        died += 1
    assert died > 10 // stride
    assert (done.notes, done.is_complete) == ([], True)
    assert row["numbers"] == (rows if keep.whole_days is None else 0)
    assert store.objects(COMPACTION) == []
    assert sum("torch_trace" in one.name for one in store.objects("project=train")) == 1


def test_a_second_roll_up_is_refused(ended: Made, url: str, store: Store) -> None:
    """As long as another one lives; nothing is changed by it."""
    place, folder = bucket_of(url, os.environ), ended()
    record(folder, trace_writer(), 16)
    place.export(folder)
    before = store.objects()
    with (
        held(store, f"{COMPACTION}/lock", wait_s=0, busy="it is held"),
        pytest.raises(HistoryBusy, match="is being compacted by another process"),
    ):
        place.compact(Keep(whole_days=1))
    assert store.objects() == before
    assert place.compact(Keep(whole_days=1)).rolled_rows == 16


def test_a_query_whose_rows_are_rolled_up_begins_again(ended: Made, url: str, store: Store) -> None:
    """It has listed the objects of before: it answers by the rows that stand for theirs."""
    place, folder = bucket_of(url, os.environ), ended()
    record(folder, trace_writer(), 16)
    place.export(folder)
    wanted = History(url).query(CALLS, timeout_s=60).to_pylist()
    history = History(url)
    first = history.source.files

    def listed(folders: Any) -> list[str]:
        found = first(folders)
        history.source.files = first
        assert place.compact(Keep(whole_days=1)).rolled_rows == 16
        return found

    history.source.files = listed
    (row,) = history.query(CALLS, timeout_s=60).to_pylist()
    assert row == {**wanted[0], "numbers": 0}


def test_rolled_up_objects_are_not_read_again(
    ended: Made, url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is new, a roll-up gets no object but what says how far exports are."""
    place, folder = bucket_of(url, os.environ), ended()
    record(folder, trace_writer(), 16)
    place.export(folder)
    place.compact(Keep(whole_days=1))
    got: list[str] = []
    get = store.get

    def noted(name: str) -> bytes | None:
        got.append(name)
        return get(name)

    monkeypatch.setattr(store, "get", noted)
    assert place.compact(Keep(whole_days=1)).rolled_rows == 0
    assert not [name for name in got if name.endswith(".parquet")]
