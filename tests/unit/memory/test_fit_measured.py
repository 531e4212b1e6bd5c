"""What is measured of one size of batch, scaled to another."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from probing.allocations import Event, Recording
from probing.allocations.recording import EXISTING
from probing.allocations.step_curve import StepCurve, curves_of
from probing.diagnosis.memory.fit_measured import (
    MeasuredFit,
    Sighting,
    _host_facts,
    _passes,
    device_sightings,
)
from probing.errors import FitRefused
from probing.messages.about.fit import FitRequest, FitShape

pytestmark = pytest.mark.anypython

WEIGHTS, ACTIVATION, GRADIENT, SCRATCH, OUTPUT = 1000, 400, 300, 2000, 5000
FACTS: dict[str, Any] = {
    "model": "M", "device": "cpu", "micro_batches": 1, "blocks": None, "block_class": None,
    "config_field": None, "loss": "", "measured_bytes": None, "fixed_bytes": None,
    "room_bytes": None, "room": None, "held_s": 0.0, "notes": (), "basis": "it was measured",
}  # fmt: skip


def event(action: str, address: int, size: int, at: int, category: str | None = None) -> Event:
    """An event on the CPU."""
    return Event(action, address, size, 0, 0, at, (), None, category)


def recording() -> Recording:
    """Two steps: weights, two activations, a gradient for each, and the optimizer's scratch."""
    events = [event(EXISTING, 1, WEIGHTS, 0, "parameters")]
    for begin in (100, 200):
        events += [
            event("alloc", 2, ACTIVATION, begin + 1, "activations"),
            event("alloc", 3, ACTIVATION, begin + 2, "activations"),
            event("free", 3, ACTIVATION, begin + 3, "activations"),
            event("alloc", 4, GRADIENT, begin + 4, "gradients"),
            event("free", 2, ACTIVATION, begin + 5, "activations"),
            event("alloc", 5, SCRATCH, begin + 6),
            event("free", 5, SCRATCH, begin + 7),
            event("free", 4, GRADIENT, begin + 8, "gradients"),
        ]
    marks = ((7, 100), (8, 200), (9, 300))
    return Recording(how="profiler", devices=("cpu",), marks=marks, events=tuple(events),
                     happened=16)  # fmt: skip


def curve(step: int) -> StepCurve:
    """One of its steps."""
    return next(curve for curve in curves_of(recording(), 0) if curve.step == step)


@pytest.mark.parametrize("step", [7, 8])
def test_only_what_a_batch_makes_grows_with_it(step: int) -> None:
    """Weights, gradients and the optimizer's scratch stay, activations grow, the peak moves."""
    now, large = curve(step).peak(), curve(step).peak(10)
    assert now.phase == "optimizer"
    assert now.parts == {"parameters": WEIGHTS, "gradients": GRADIENT, "temporary": SCRATCH}
    assert large.phase == "forward"
    assert large.parts == {"parameters": WEIGHTS, "activations": 10 * 2 * ACTIVATION}
    assert large.bytes == sum(large.parts.values())


def test_what_was_let_go_of_in_an_earlier_step_is_in_no_later_one() -> None:
    """What was there before the recording is seen to have gone as a step ends, and not before."""
    whole = recording()
    events = [
        event(EXISTING, 9, OUTPUT, 0, "other"),
        *whole.events,
        event("free", 9, OUTPUT, 200, "other"),
    ]
    events.sort(key=lambda one: one.time_ns or 0)
    first, second = curves_of(dataclasses.replace(whole, events=tuple(events)), 0)
    assert first.peak().bytes == curve(7).peak().bytes + OUTPUT
    assert second.peak().bytes == curve(8).peak().bytes


def test_one_size_is_held_against_another_that_was_measured_too() -> None:
    """With two sizes on record the error for the smaller is told; with one, that none is known."""
    full = Sighting(step=7, shape=FitShape(batch=8, seq=4), measured=curve(7))
    half = Sighting(step=8, shape=FitShape(batch=4, seq=4), measured=curve(8))
    answer = MeasuredFit([full, half], FACTS).answer(FitRequest(batch=16))
    assert (answer.shapes, answer.miss) == (2, 0.0), "the optimizer's peak does not scale"
    assert answer.asked.shape == FitShape(batch=16, seq=4)
    assert MeasuredFit([full], FACTS).answer(FitRequest()).miss is None
    assert "length" in MeasuredFit([full], FACTS).answer(FitRequest(seq=8)).notes[0]


@pytest.mark.parametrize("asked", [FitRequest(layers=3), FitRequest(seq=3)])
def test_what_was_not_measured_is_refused(asked: FitRequest) -> None:
    """Neither a number of blocks nor the length of a model without tokens can be scaled."""
    seen = Sighting(step=7, shape=FitShape(batch=8), measured=curve(7))
    with pytest.raises(FitRefused):
        MeasuredFit([seen], FACTS).answer(asked)


def device_rows(step: int, forward: int, *, peak: int) -> list[dict[str, Any]]:
    """What python.memory has of one pass on a device, with gradients of 30 at its end."""
    levels = {"before_forward": 100, "after_forward": 100 + forward, "after_backward": 130}
    return [
        {"device": "cuda:0", "phase": phase, "step": step, "micro_batch": 0,
         "allocated_bytes": level, "peak_bytes": peak}
        for phase, level in levels.items()
    ]  # fmt: skip


def test_an_allocators_figures_tell_what_a_batch_adds() -> None:
    """Of what lies beyond the forward pass, gradients stay and the rest grows with the batch."""
    figures = device_rows(1, 20, peak=60) + device_rows(2, 40, peak=190)
    shapes = [
        {"step": 1, "micro_batch": 0, "samples": 4, "tokens": None},
        {"step": 2, "micro_batch": 0, "samples": 8, "tokens": None},
        {"step": 3, "micro_batch": 0, "samples": 16, "tokens": None},
    ]
    small, large = device_sightings(figures, shapes)
    assert (small.shape.batch, large.shape.batch) == (4, 8), "the third step is not whole"
    assert large.measured.peak().bytes == 190
    assert large.measured.peak(3).bytes == 100 + 3 * 40 + 30 + 3 * 20
    with pytest.raises(FitRefused, match="no whole micro-batch"):
        device_sightings(figures, shapes[2:])


@pytest.mark.parametrize(("working", "room"), [(6, 62), (None, 64)])
def test_cached_files_leave_their_room(working: int | None, room: int) -> None:
    """They fill a cgroup in which data is read, and give way to whoever needs memory."""
    row = {"resident_bytes": 4, "node_total_bytes": 256, "node_used_bytes": 30}
    row |= {"cgroup_limit_bytes": 64, "cgroup_bytes": 63}
    facts = _host_facts([row], 3, working)
    assert (facts["room_bytes"], facts["room"]) == (room, "the limit of its cgroup")


@pytest.mark.parametrize(
    ("steps", "passes"), [([5] * 8 + [6], 8), ([5] * 8, 8), ([4] + [5] * 8 + [6] * 8, 8), ([], 1)]
)
def test_micro_batches_are_those_of_a_whole_step(steps: list[int], passes: int) -> None:
    """Of the step in progress some are yet to come."""
    assert _passes([{"step": step} for step in steps]) == passes
