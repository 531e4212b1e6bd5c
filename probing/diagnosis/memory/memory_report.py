"""Where the memory of a process is: what `probing PID memory` shows, put together.

Rules of this file: runs at the operator's side. Live tables say what tensors hold; the recorded
ones say what the process, the host and the device had in use, and where the peak was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...client.base import Process
from ...messages.common import REFERRERS
from ...messages.frozen import InNotebooks, dataclass
from ...messages.limits import WAIT_S
from ...tables import CATEGORIES, MOMENTS, PINNED
from ..advice import Advice, Usage, advise_on_usage
from ..arming import arm_and_wait
from ..device_use import DeviceUse, device_use
from .activation_theory import Transformer, transformer_in
from .backward_growth import QUERY, BackwardGrowth, advise_on_growth, growth_of

Row = Mapping[str, Any]

_FIGURES = (
    "SELECT device, step, phase, allocated_bytes, peak_bytes, reserved_bytes, peak_reserved_bytes,"
    " device_used_bytes, device_total_bytes, resident_bytes, cgroup_bytes, cgroup_limit_bytes,"
    " cgroup_oom_kills, node_used_bytes, node_total_bytes FROM python.memory"
)
_NEWEST = (
    _FIGURES + " QUALIFY row_number() OVER"
    " (PARTITION BY device ORDER BY phase = 'after_step' DESC, seq DESC) = 1"
)
_BASELINE = (
    _FIGURES + " WHERE phase = 'attach'"
    " QUALIFY row_number() OVER (PARTITION BY device ORDER BY seq) = 1"
)
_PEAK = (
    "SELECT step, module, stage, allocated_bytes FROM python.torch_trace WHERE allocated_bytes IS"
    " NOT NULL ORDER BY allocated_bytes DESC, start_ns + duration_ns LIMIT 1"
)
"""Calls that end after a sample have it until the next: the first of them is the one it was of."""
_STILL = ("the training makes no progress", "the training has ended no step yet")
_NOT_SEARCHED = (
    "who refers to the tensors was not looked for: that is done at the ends of steps, and the"
    " training makes none; `backtrace` tells where it is"
)
_NO_TRANSFORMER = (
    "there is no formula to compare with: its calls show no list of layers that each turn a tensor"
    " of three dimensions into one of the same size, as those of a transformer do"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The tensors of one device.

    Attributes:
        name: Such as `cpu` or `cuda:0`.
        categories: By moment: the rows of python.memory_categories.
    """

    name: str
    categories: Mapping[str, tuple[Row, ...]]

    def total(self, moment: str) -> int | None:
        """What all tensors take; None at a moment that was not seen."""
        rows = self.categories.get(moment)
        return None if rows is None else sum(row["bytes"] for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport(InNotebooks):
    """Where the memory of a process is.

    Attributes:
        devices: Those that hold tensors.
        tensors: The largest storages, at the moment with the activations if that was seen.
        activations: The rows of python.activations.
        segments: The rows of python.memory_segments.
        newest: By device: the newest row of python.memory, if there is one that of a step's end.
        baseline: By device: the row as the agent came.
        peak: The largest figure in python.torch_trace, and where it was.
        transformer: The sizes of the model, if they were asked for and shown.
        referrers: Rows of python.referrers by the address of the storage; None if not asked for.
        suggestions: What to do, if anything.
        notes: What the reader should know.
        backward: What a backward pass adds, by device.
    """

    devices: tuple[Device, ...]
    tensors: tuple[Row, ...]
    activations: tuple[Row, ...]
    segments: tuple[Row, ...]
    newest: Mapping[str, Row]
    baseline: Mapping[str, Row]
    peak: Row | None
    transformer: Transformer | None
    suggestions: tuple[Advice, ...]
    notes: tuple[str, ...]
    referrers: Mapping[int, tuple[Row, ...]] | None = None
    device: DeviceUse | None = None
    backward: tuple[BackwardGrowth, ...] = ()


def report_on(
    process: Process,
    *,
    top: int,
    theory: bool = False,
    referrers: bool = False,
    timeout_s: float | None = None,
) -> MemoryReport:
    """Ask a process where its memory is.

    Args:
        top: How many of the largest tensors to name.
        theory: Whether the sizes of a transformer are to be found.
        referrers: Whether to look for who refers to those tensors; they are then those that are
            there as a step ends.
        timeout_s: How long its next step may be waited for.
    """
    wait_s = WAIT_S if timeout_s is None else timeout_s
    answers = [process.live("memory_categories", wait_s=wait_s)]
    answers += [process.live(name) for name in ("tensors", "activations")]
    categories, tensors, activations = [answer.dicts() for answer in answers]
    transformer, notes = None, list[str]()
    if theory:
        answers.append(process.live("modules", wait_s=wait_s))
        transformer = transformer_in(answers[-1].dicts())
        notes = [] if transformer is not None else [_NO_TRANSFORMER]
    segments = tuple(process.live("memory_segments").dicts())
    newest, baseline = _by_device(process, _NEWEST), _by_device(process, _BASELINE)
    peaks = process.query(_PEAK).to_pylist()
    devices = _devices(categories)
    backward = growth_of(process.query(QUERY).to_pylist(), _gradients(devices))
    largest = _largest(tensors, top, of_step_end=referrers)
    told = [answer.note for answer in answers if answer.note]
    found, more = _found(process, largest, told, 2 * wait_s) if referrers else (None, ())
    return MemoryReport(
        devices=devices,
        tensors=largest,
        activations=tuple(activations),
        segments=segments,
        newest=newest,
        baseline=baseline,
        peak=peaks[0] if peaks else None,
        transformer=transformer,
        suggestions=(*_suggestions(devices, newest, segments), *advise_on_growth(backward)),
        notes=(*dict.fromkeys(told), *notes, *more),
        referrers=found,
        device=device_use(process),
        backward=backward,
    )


def _gradients(devices: Sequence[Device]) -> dict[str, int]:
    """What all gradients take, by device, at the moment at which that is most."""
    return {
        device.name: max(
            row["bytes"]
            for rows in device.categories.values()
            for row in rows
            if row["category"] == "gradients"
        )
        for device in devices
    }


def _largest(tensors: Sequence[Row], top: int, *, of_step_end: bool) -> tuple[Row, ...]:
    """The largest tensors of one moment: the last that is known, or the end of a step."""
    moments = {row["moment"] for row in tensors}
    among = moments & {MOMENTS[0]} if of_step_end else moments
    shown = max(among, key=MOMENTS.index, default=None)
    return tuple([row for row in tensors if row["moment"] == shown][:top])


def _found(
    process: Process, tensors: Sequence[Row], told: Sequence[str], timeout_s: float
) -> tuple[dict[int, tuple[Row, ...]] | None, tuple[str, ...]]:
    """Who refers to tensors, and notes; not looked for in a training that stands still."""
    if any(note.startswith(_STILL) for note in told):
        return None, (_NOT_SEARCHED,)
    return referrers_of(process, tensors, timeout_s=timeout_s)


def _suggestions(
    devices: Sequence[Device], newest: Mapping[str, Row], segments: tuple[Row, ...]
) -> tuple[Advice, ...]:
    """What to do about how devices are used."""
    return tuple(
        advice
        for device in devices
        for advice in advise_on_usage(usage_of(device, newest, segments))
    )


def referrers_of(
    process: Process, tensors: Sequence[Row], *, timeout_s: float
) -> tuple[dict[int, tuple[Row, ...]], tuple[str, ...]]:
    """Who refers to the storages of some rows of python.tensors, by their addresses.

    What has come to lie at an address since is left out.

    Args:
        timeout_s: How long the end of any one step may be waited for.

    Raises:
        ProbingError: It cannot be looked for, or no step ends in time.
    """
    sizes = {row["address"]: row["bytes"] for row in tensors}
    if not sizes:
        return {}, ()
    armed = arm_and_wait(process, REFERRERS, 1, timeout_s=timeout_s, addresses=tuple(sizes))
    if armed.state == "failed":
        return {}, (f"who refers to them could not be looked for: {armed.reason}",)
    found: dict[int, tuple[Row, ...]] = {}
    for row in process.live(REFERRERS).dicts():
        if row["bytes"] == sizes.get(row["address"]):
            found[row["address"]] = (*found.get(row["address"], ()), row)
    return found, armed.notes


def scattered_bytes(segments: Sequence[Row]) -> int | None:
    """What is free in segments beside the largest free piece; None without segments."""
    if not segments:
        return None
    free = sum(row["free_bytes"] for row in segments)
    return int(free - max(row["largest_free_bytes"] for row in segments))


def room_of(device: str, row: Row | None) -> int | None:
    """What there is in all: of a device, or what the process may have of the host's memory."""
    if row is None:
        return None
    if device != "cpu":
        return row["device_total_bytes"]  # type: ignore[no-any-return]
    limits = [row["cgroup_limit_bytes"], row["node_total_bytes"]]
    return min((limit for limit in limits if limit is not None), default=None)


def usage_of(device: Device, newest: Mapping[str, Row], segments: Sequence[Row]) -> Usage:
    """What the rules are given."""
    seen = [row for rows in device.categories.values() for row in rows]
    sizes = {
        name: max((row["bytes"] for row in seen if row["category"] == name), default=0)
        for name in CATEGORIES
    }
    row = newest.get(device.name)
    if row is None and device.name == "cpu":  # what the host has stands in every row
        row = next(iter(newest.values()), None)
    own = [one for one in segments if one["device"] == device.name and one["pool"] != PINNED]
    held = ("parameters", "buffers")
    now = [one for one in device.categories.get(MOMENTS[0], ()) if one["category"] in held]
    return Usage(
        device=device.name,
        total=room_of(device.name, row),
        categories=sizes,
        quantized=sum(one["quantized_bytes"] for one in now),
        peak=row["peak_bytes"] if row and device.name != "cpu" else None,
        scattered=scattered_bytes(own),
    )


def _devices(rows: Sequence[Row]) -> tuple[Device, ...]:
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        found.setdefault(row["device"], {}).setdefault(row["moment"], []).append(row)
    return tuple(
        Device(name=name, categories={moment: tuple(own) for moment, own in moments.items()})
        for name, moments in found.items()
    )


def _by_device(process: Process, sql: str) -> dict[str, Row]:
    return {row["device"]: row for row in process.query(sql).to_pylist()}
