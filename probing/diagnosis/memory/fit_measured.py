"""Predicts the memory of a step of another size from what steps of the live run take.

Rules of this file: runs at the operator's side; none of the model's code is run for it. On the CPU
one step is recorded with every allocation, which tells what there was at each moment of it. An
accelerator's own figures, as python.memory has them, say what each forward pass has added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ...allocations.step_curve import StepCurve, StepPeak, curves_of
from ...errors import FitRefused, ProbingError
from ...messages.about.fit import FitAnswer, FitPart, FitPeak, FitRequest, FitShape
from ...messages.frozen import dataclass
from ...tables import SOURCES

if TYPE_CHECKING:
    from ...client.base import Process
    from ...client.recording_client import Tell

Row = Mapping[str, Any]

_MOST_STEPS = 4
"""So many steps are recorded where batches differ in size, so that one can be held against
another."""
_LEAST_STEPS = 2
"""What was there before the recording is not seen to go: the first step shows what variables keep
of the step before for too long, and counts for nothing where there is another."""
_ALONE = "one step alone was recorded, which keeps too long what was there before it"
_FIGURES = (
    "SELECT device, phase, step, micro_batch, allocated_bytes, peak_bytes, reserved_bytes,"
    " peak_reserved_bytes, device_used_bytes, device_total_bytes, resident_bytes,"
    " cgroup_limit_bytes, node_used_bytes, node_total_bytes FROM python.memory ORDER BY seq"
)
_SHAPES = (
    "SELECT step, micro_batch, samples, tokens FROM python.micro_batches"
    " WHERE samples IS NOT NULL AND duration_ns IS NOT NULL ORDER BY seq"
)
_WORKING = (
    "SELECT cgroup_working_bytes FROM python.host_memory WHERE role = 'trainer'"
    " AND cgroup_working_bytes IS NOT NULL"
)
_MODELS = (
    "SELECT root FROM python.torch_trace WHERE stage = 'forward' AND root IS NOT NULL"
    " GROUP BY root ORDER BY count(*) DESC LIMIT 1"
)
_LENGTHS = (
    "what grows with the square of the length, as attention that keeps its scores, is taken to"
    " grow with the length"
)
_WAY_OUT = "Without --from-measured the model's own code is run, without data."


class Measured(Protocol):
    """Something that was measured of steps of one size."""

    def peak(self, ratio: float = 1.0) -> StepPeak:
        """The most in use, were the batch so many times as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What was measured, and of a step of what size.

    Attributes:
        step: The training step.
    """

    step: int
    shape: FitShape
    measured: Measured


class DevicePasses:
    """What an accelerator's allocator says of the passes of one size.

    Attributes:
        base: Handed out as the forward pass begins.
        forward: What that adds.
        gradients: What is more after the backward pass than before the forward.
        beyond: By how much the allocator's peak lies above the end of the forward pass.
    """

    def __init__(self, *, base: int, forward: int, gradients: int, beyond: int) -> None:
        self.base, self.forward = base, forward
        self.gradients, self.beyond = gradients, beyond

    def peak(self, ratio: float = 1.0) -> StepPeak:
        """See `Measured`; of what lies beyond the forward pass, gradients stay as they are."""
        lasting = min(self.gradients, self.beyond)
        parts = {
            "there before the forward pass": self.base,
            "added by the forward pass": round(self.forward * ratio),
            "gradients": lasting,
            "temporary": round((self.beyond - lasting) * ratio),
        }
        return StepPeak(sum(parts.values()), "backward" if self.beyond else "forward", parts)


class MeasuredFit:
    """Predictions from what has been measured once.

    Args:
        sightings: At least one.
        facts: What an answer says beside the peaks, as `FitAnswer` has it.
    """

    def __init__(self, sightings: Sequence[Sighting], facts: Mapping[str, Any]) -> None:
        self._sightings = sightings
        self._from = max(sightings, key=lambda one: _size(one.shape))
        self._facts = dict(facts)

    def answer(self, request: FitRequest) -> FitAnswer:
        """The prediction for a step of another size.

        Raises:
            FitRefused: A length or a number of blocks is asked for that nothing tells of.
        """
        shape = self._from.shape
        if request.layers is not None:
            raise FitRefused("what one more block takes was not measured", help=_WAY_OUT)
        if request.seq is not None and shape.seq is None:
            raise FitRefused(
                "the model is not given tokens, so that --seq means nothing for it",
                help="A length is that of an integer tensor with two dimensions.",
            )
        asked = FitShape(batch=request.batch or shape.batch, seq=request.seq or shape.seq)
        notes = [*self._facts["notes"]]
        if asked.seq != shape.seq:
            notes.append(_LENGTHS)
        facts = {**self._facts, "notes": tuple(notes)}
        return FitAnswer(
            step=self._from.step,
            now=self._predict(shape),
            asked=self._predict(asked),
            shapes=len({one.shape for one in self._sightings}),
            miss=self._miss(),
            **facts,
        )

    def _predict(self, shape: FitShape) -> FitPeak:
        peak = self._from.measured.peak(_size(shape) / _size(self._from.shape))
        parts = sorted(peak.parts.items(), key=lambda part: -part[1])
        return FitPeak(
            shape=shape,
            bytes=peak.bytes,
            phase=peak.phase,
            parts=tuple(FitPart(category=_words(name), bytes=size) for name, size in parts if size),
        )

    def _miss(self) -> float | None:
        """The largest error for a size that was measured, too; None where there was only one."""
        others = [one for one in self._sightings if one.shape != self._from.shape]
        misses = [self._predict(o.shape).bytes / o.measured.peak().bytes - 1.0 for o in others]
        return max(misses, key=abs, default=None)


def measure(
    process: Process, *, timeout_s: float | None = None, tell: Tell | None = None
) -> MeasuredFit:
    """Measure what steps of a live run take.

    Args:
        timeout_s: How long any one step may take.
        tell: Called with how far a recording is, now and then.

    Raises:
        ProbingError: Nothing can be measured; the sentence says why.
    """
    figures = process.query(_FIGURES).to_pylist()
    on_device = [row for row in figures if row["allocated_bytes"] is not None]
    facts: dict[str, Any] = {"model": _model(process)}
    if on_device:
        shapes: Sequence[Row] = process.query(_SHAPES).to_pylist()
        sightings = device_sightings(on_device, shapes)
        facts.update(_device_facts(on_device[-1]), micro_batches=_passes(shapes), notes=())
    else:
        working = [row["cgroup_working_bytes"] for row in process.query(_WORKING).to_pylist()]
        sightings, shapes, notes = _recorded(process, timeout_s, tell)
        peak = max(one.measured.peak().bytes for one in sightings)
        facts.update(
            _host_facts(figures, peak, *working[:1]), micro_batches=_passes(shapes), notes=notes
        )
    return MeasuredFit(sightings, {**_NOTHING, **facts})


_NOTHING: dict[str, Any] = {
    "blocks": None,
    "block_class": None,
    "config_field": None,
    "loss": "",
    "measured_bytes": None,
    "held_s": 0.0,
}
"""What an answer of this kind does not know."""


def checked(
    process: Process,
    answer: FitAnswer,
    *,
    timeout_s: float | None = None,
    tell: Tell | None = None,
) -> FitAnswer:
    """The same prediction with what the step that the training runs really takes.

    An accelerator has measured it. On the CPU every allocation of one step is recorded, unless that
    is not possible, or somebody records already; then a note says so.

    Args:
        timeout_s: How long any one step may take.
        tell: Called with how far the recording is, now and then.
    """
    if answer.measured_bytes is not None or answer.device != "cpu":
        return answer
    try:
        rows = [r for r in process.live(SOURCES.name).dicts() if r["source"] == "allocations"]
        if any(row["state"] == "on" or row["note"] for row in rows):
            return _unchecked(answer, "a recording of allocations is under way, or not fetched yet")
        sightings, _, notes = _recorded(process, timeout_s, tell)
        if _ALONE in notes:  # a step of many calls, as one with an evaluation in it
            sightings, _, notes = _recorded(process, timeout_s, tell)
    except ProbingError as error:
        return _unchecked(answer, error.message)
    if _ALONE in notes:
        return _unchecked(answer, _ALONE)
    own = [one.measured.peak().bytes for one in sightings if _size(one.shape) == _now(answer)]
    if not own:
        return _unchecked(answer, "the step that was recorded has another size")
    return replace(answer, measured_bytes=max(own))


def _unchecked(answer: FitAnswer, why: str) -> FitAnswer:
    return replace(answer, notes=(*answer.notes, f"it was not checked against a step: {why}"))


def _now(answer: FitAnswer) -> int:
    """The size of the step that the training runs."""
    return _size(answer.now.shape)


def device_sightings(figures: Sequence[Row], shapes: Sequence[Row]) -> tuple[Sighting, ...]:
    """What the figures of a device say of each size of batch, the newest pass of each.

    Args:
        figures: Rows of python.memory with what the allocator had handed out.
        shapes: Rows of python.micro_batches.

    Raises:
        FitRefused: No whole pass is on record.
    """
    device = figures[-1]["device"]
    levels = {
        (row["step"], row["micro_batch"], row["phase"]): row["allocated_bytes"]
        for row in figures
        if row["device"] == device
    }
    passes: dict[FitShape, tuple[int, int, int, int]] = {}
    for row in shapes:
        place = row["step"], row["micro_batch"]
        found = [levels.get((*place, phase)) for phase in _PASS]
        if None not in found:
            before, forward, after = (level or 0 for level in found)
            grown = max(0, after - before)
            passes[_shape_of(row)] = row["step"], before, max(0, forward - before), grown
    if not passes:
        raise FitRefused("no whole micro-batch with figures of the device is on record yet")
    peak = max(row["peak_bytes"] for row in figures if row["device"] == device)
    beyond = max(0, peak - max(base + forward for _, base, forward, _ in passes.values()))
    return tuple(
        Sighting(
            step=step,
            shape=shape,
            measured=DevicePasses(base=base, forward=forward, gradients=grown, beyond=beyond),
        )
        for shape, (step, base, forward, grown) in passes.items()
    )


_PASS = ("before_forward", "after_forward", "after_backward")


def _recorded(
    process: Process, timeout_s: float | None, tell: Tell | None
) -> tuple[tuple[Sighting, ...], Sequence[Row], tuple[str, ...]]:
    """What some steps take on the CPU, every allocation recorded."""
    before = process.query(_SHAPES).to_pylist()
    steps = _MOST_STEPS if len({_shape_of(row) for row in before}) > 1 else _LEAST_STEPS
    recording = process.snapshot(steps=steps, timeout_s=timeout_s, tell=tell)
    if recording.happened > recording.kept:
        raise FitRefused("a step makes more allocations than are kept", help=_WAY_OUT)
    shapes = process.query(_SHAPES).to_pylist()
    own: dict[int, list[Row]] = {}
    for row in shapes:
        own.setdefault(row["step"], []).append(row)
    curves: list[StepCurve] = list(curves_of(recording, 0))
    notes = (recording.note,) if recording.note else ()
    if len(curves) == 1:
        notes = (*notes, _ALONE)
    curves = curves[1:] or curves
    sightings = tuple(
        Sighting(step=curve.step, shape=max(map(_shape_of, own[curve.step]), key=_size),
                 measured=curve)
        for curve in curves if own.get(curve.step)
    )  # fmt: skip
    if not sightings:
        raise FitRefused("the record does not say how many samples a step has", help=_WAY_OUT)
    return sightings, shapes, notes


def _host_facts(figures: Sequence[Row], peak: int, working: int | None = None) -> dict[str, Any]:
    """What the process needs beside tensors, and what it may have, from before the recording.

    Args:
        working: What its cgroup holds but for cached files, which give way; None for itself alone.
    """
    resident = [row["resident_bytes"] for row in figures if row["resident_bytes"] is not None]
    facts: dict[str, Any] = {"device": "cpu", "room_bytes": None, "room": None}
    facts["fixed_bytes"] = max(0, max(resident) - peak) if resident else None
    if not resident or figures[-1]["node_total_bytes"] is None:
        return facts
    row, now = figures[-1], resident[-1]
    rooms = [(row["node_total_bytes"] - row["node_used_bytes"] + now, _FREE)]
    if row["cgroup_limit_bytes"] is not None:
        others = 0 if working is None else max(0, working - now)
        rooms.append((row["cgroup_limit_bytes"] - others, _CGROUP))
    facts["room_bytes"], facts["room"] = min(rooms)
    return {**facts, "basis": _RECORDED}


_FREE = "the memory that this machine has free"
_CGROUP = "the limit of its cgroup"
_RECORDED = "every allocation of a recorded step; what it made, but for the optimizer, is scaled"
_ALLOCATOR = (
    "the allocator's figures at each phase, and its peak since the program has last reset it"
)


def _device_facts(row: Row) -> dict[str, Any]:
    """The same of a device, from its newest figures."""
    room = None
    if row["device_total_bytes"] is not None and row["device_used_bytes"] is not None:
        outside = max(0, row["device_used_bytes"] - row["reserved_bytes"])
        room = row["device_total_bytes"] - outside
    return {
        "device": row["device"],
        "fixed_bytes": row["peak_reserved_bytes"] - row["peak_bytes"],
        "room_bytes": room,
        "room": f"the memory of {row['device']}, less what libraries and other programs use",
        "basis": _ALLOCATOR,
    }


def _model(process: Process) -> str:
    rows = process.query(_MODELS).to_pylist()
    return str(rows[0]["root"]) if rows else "a model"


def _passes(shapes: Sequence[Row]) -> int:
    """How many micro-batches the newest whole step has: the last may be in progress."""
    steps = [row["step"] for row in shapes]
    newest = list(dict.fromkeys(steps))[-2:]
    return steps.count(newest[0]) if newest else 1


def _shape_of(row: Row) -> FitShape:
    """The size of a micro-batch."""
    samples, tokens = row["samples"], row["tokens"]
    return FitShape(batch=samples, seq=None if tokens is None else tokens // max(1, samples))


def _size(shape: FitShape) -> int:
    return shape.batch * (shape.seq or 1)


def _words(category: str) -> str:
    return category.replace("_", " ")
