"""What grows as it is filled is no leak yet; a leak is told as soon as it is seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from probing.diagnosis.doctor.findings import Sign
from probing.diagnosis.doctor.rules.memory.growth import _growth
from probing.diagnosis.leaks.report import LeakReport, report_of
from tests.unit.memory.leak_samples import KEPT_GRAPH

from .records import GIB, MIB, memory

pytestmark = pytest.mark.anypython

_SEEN_NOTHING = dataclasses.replace(KEPT_GRAPH, findings=(), categories=())


def told(
    values: Callable[[int], float],
    count: int,
    *,
    report: LeakReport | None = _SEEN_NOTHING,
    is_alive: bool = True,
) -> list[Sign]:
    """What is said of resident memory in so many steps, with what a watch has shown."""
    of = memory(values, count=count, shm_bytes=0 if is_alive else None)
    return list(_growth(of, lambda _: (report, ""), lambda *_: None))


def queue(at: float, least: float = GIB, each: float = 48 * MIB) -> Callable[[int], float]:
    """A queue of 8 batches that gets one more in every so many steps, and is full then."""
    return lambda step: least + each * min(8.0, step / at) + (step * 7919 % 5) * MIB / 4


@pytest.mark.parametrize(
    ("values", "count"),
    [
        (queue(4.0), 30),  # of actors and a learner, as it is filled
        (queue(10.0), 70),  # slowly
        (lambda s: queue(8.0)(max(0, s - 120)), 180),  # of actors that have to compile at first
        (lambda s: GIB + 8 * MIB * min(s, 90), 88),  # a data set that is cached in its first epoch
        (lambda s: GIB / 8 + 4 * MIB * s, 40),  # a small process whose pool is filled: a fifth
    ],
)
@pytest.mark.parametrize("report", [_SEEN_NOTHING, None])
def test_what_is_filled_at_first_is_only_possibly_a_leak(
    values: Callable[[int], float], count: int, report: LeakReport | None
) -> None:
    """Nobody was seen who keeps it, and it has grown for few steps: so far that is no leak."""
    (sign,) = told(values, count, report=report)
    assert sign.certainty == "possible"
    assert "a queue, a cache or a pool that is being filled looks the same" in sign.evidence[-1]
    assert sign.fix.startswith("Look again some minutes later")


@pytest.mark.parametrize("values", [queue(4.0), queue(10.0), lambda s: GIB + 8 * MIB * min(s, 90)])
def test_what_is_full_grows_no_more(values: Callable[[int], float]) -> None:
    """Some minutes later nothing is said of it."""
    assert told(values, 400) == []


def test_a_leak_that_goes_on_is_likely() -> None:
    """Nothing that is filled at first takes so long for so much."""
    (sign,) = told(lambda s: GIB + 4 * MIB * s, 150)
    assert sign.certainty == "likely"
    assert not any("being filled" in one for one in sign.evidence)


def test_a_leak_that_is_seen_is_likely_from_the_first_steps_on() -> None:
    """Whoever keeps it is known: no more steps are waited for."""
    (leak,) = (one for one in KEPT_GRAPH.leaks if one.bytes_per_step)
    kept = dataclasses.replace(leak, bytes_per_step=4.0 * MIB)
    report = dataclasses.replace(_SEEN_NOTHING, findings=(kept,))
    (sign,) = told(lambda s: GIB + 4 * MIB * s, 30, report=report)
    assert sign.certainty == "likely"


def test_a_leak_of_what_has_ended_is_likely() -> None:
    """Nobody can look again."""
    (sign,) = told(lambda s: GIB + 8 * MIB * s, 60, report=None, is_alive=False)
    assert sign.certainty == "likely"


def test_the_batches_of_a_queue_with_a_limit_are_named_as_that() -> None:
    """Each kind of tensor in them, and the queue's own length where they are no tensors."""
    base = {
        "place": "main", "holder": "local", "bound": 8, "tensors_per_step": 0.4, "has_graph": False,
        "was_input": False, "file": "/home/me/actors.py", "lineno": None, "shape": "[64,4096]",
    }  # fmt: skip
    tensors = {**base, "path": "batches.queue[...]['seen']", "name": "tensors",
               "category": "other", "bytes_per_step": 2.0 * MIB}  # fmt: skip
    items = {**base, "path": "batches.queue", "name": "items", "category": None,
             "bytes_per_step": 2.0 * MIB}  # fmt: skip
    for row in (tensors, items):
        (sign,) = told(lambda s: GIB + 2 * MIB * s, 60, report=report_of([row], [], []))
        assert sign.certainty == "possible"
        assert "a collection with a limit is filling in batches.queue" in sign.summary
        assert "its limit is 8 items" in sign.evidence
    unbounded = report_of([{**items, "bound": None}], [], [])
    (sign,) = told(lambda s: GIB + 2 * MIB * s, 60, report=unbounded)
    assert sign.certainty == "likely"


@pytest.mark.parametrize(
    ("beside", "says"), [(2700.0, "possible"), (MIB, "likely"), (None, "likely")]
)
def test_what_was_taken_out_of_its_queue_meanwhile_is_no_leak(
    beside: float | None, says: str
) -> None:
    """Small parts of a batch of which nobody is seen, beside the large ones that are in the queue.

    What is not little, or is not counted in bytes, as hooks are, is told as what it is.
    """
    base = {
        "place": None, "tensors_per_step": 0.4, "has_graph": False, "was_input": False,
        "file": None, "lineno": None, "category": "other",
    }  # fmt: skip
    rows = [
        {**base, "path": "batches.queue[...]['seen']", "name": "tensors", "holder": "local",
         "bound": 8, "bytes_per_step": 2.0 * MIB, "shape": "float32[64,4096]"},
        {**base, "path": None, "name": "tensors" if beside else "hooks", "holder": "native",
         "bound": None, "bytes_per_step": beside, "shape": "int64[64]",
         **({} if beside else {"category": None})},
    ]  # fmt: skip
    (sign,) = told(lambda s: GIB + 2 * MIB * s, 60, report=report_of(rows, [], []))
    assert sign.certainty == says
    assert ("a collection with a limit is filling" in sign.summary) == (says == "possible")
