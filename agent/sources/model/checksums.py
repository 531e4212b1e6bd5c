"""Checksums of the parameters and buffers of the models that are trained.

Rules of this file: `step_ended` runs in the training thread; changes nothing and keeps no tensor
alive. Only plain tensors are read: a subclass may start a collective when it is looked at, so of a
DTensor its local part is. On a device only sums are made, in its own order, and fetched at once.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from ..calls.names.class_names import class_name, unwrap
from ..calls.names.module_names import outermost, walk
from ..numbers.gradient_tensors import is_flat_shard
from ..shared.found import found_roots
from ..shared.recording import Recording
from ..torch_types import Module, Tensor
from .same_on_ranks import optimizer_options, random_states
from .tensor_facts import name_of

Row = tuple[str | int | bool | None, ...]

_COLUMNS = 1024
_STATISTICS = frozenset({"running_mean", "running_var"})
"""Buffers in which a module counts its own batches: without SyncBatchNorm each rank has others."""
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_MASK = (1 << 64) - 1


class Checksums(NamedTuple):
    """What one look has shown.

    Attributes:
        step: The last step that was over; None where none is counted.
        rows: In the order of the table's columns.
        held_s: How long the training stood still for it.
    """

    step: int | None
    rows: tuple[Row, ...]
    held_s: float


class ChecksumLook:
    """A `StepEndJob`: takes the checksums at the end of one step.

    Args:
        only_random: Those of random states alone.

    Attributes:
        found: What was seen; None until then.
        is_over: Set when there is nothing more to come.
        reason: Why it failed; None if it has not.
    """

    def __init__(
        self, recording: Recording, at_step: int | None, *, only_random: bool = False
    ) -> None:
        self._recording, self._at_step = recording, at_step
        self._only_random = only_random
        self.found: Checksums | None = None
        self.is_over = threading.Event()
        self.reason: str | None = None

    def step_ended(self) -> bool:
        """See `StepEndJob`; waits for the step that was asked for."""
        over = self._recording.step - 1
        if self.is_over.is_set():
            return True
        if self._at_step is not None and over < self._at_step:
            return False
        step = over if self._recording.training_thread else None
        self.found = take_checksums(self._recording, step, only_random=self._only_random)
        self.is_over.set()
        return True

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""
        self.reason = reason
        self.is_over.set()


def take_checksums(
    recording: Recording,
    step: int | None,
    *,
    reads_devices: bool = True,
    only_random: bool = False,
) -> Checksums:
    """The checksums now.

    Args:
        reads_devices: Whether parameters on devices are read; one that hangs would not answer.
        only_random: Those of random states alone: no parameter is read.
    """
    begun = time.perf_counter()
    rows = [] if only_random else _parameter_rows(recording, step, reads_devices=reads_devices)
    others = [*random_states(reads_devices=reads_devices)]
    if not only_random:
        others[:0] = optimizer_options(recording)
    rows += [
        (step, one.kind, one.owner, None, one.name, None, None, None, False, one.value)
        for one in others
    ]
    return Checksums(step, tuple(rows), time.perf_counter() - begun)


def _parameter_rows(recording: Recording, step: int | None, *, reads_devices: bool) -> list[Row]:
    torch: Any = sys.modules["torch"]
    roots = outermost(recording.objects.roots.alive()) or found_roots()
    with torch.no_grad():
        named = [(root, recording.objects.models.name_of(root)) for root in roots]
        parts = [part for root, name in named for part in _parts(root, name)]
        marks = [_mark(part.local, reads_devices=reads_devices) for part in parts]
        texts = _fetch(torch, marks)
    return [
        (
            *(step, p.kind, p.root, p.model, p.name, _shape(t), name_of(t.dtype), str(t.device)),
            *(p.is_shard, text),
        )
        for p, text in zip(parts, texts, strict=True)
        for t in (p.local,)
    ]


class _Part(NamedTuple):
    """A parameter or a buffer.

    Attributes:
        kind: As in the table.
        root: The class of the root module.
        model: Its name.
        local: What this rank holds of it.
    """

    kind: str
    root: str
    model: str
    name: str
    local: Any
    is_shard: bool


def _parts(root: Module, model: str) -> Iterator[_Part]:
    """Each parameter and each buffer once."""
    seen: set[int] = set()
    root_class = class_name(unwrap(root))
    for path, module in walk(root, "", set()):
        statistics = _STATISTICS if getattr(module, "track_running_stats", False) else ()
        for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
            for name, tensor in list(tensors.items()):
                if tensor is None or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                yield _Part(
                    kind="statistic" if kind == "buffer" and name in statistics else kind,
                    root=root_class,
                    model=model,
                    name=f"{path}.{name}" if path else name,
                    local=getattr(tensor, "_local_tensor", tensor),
                    is_shard=_is_shard(tensor),
                )


def _is_shard(parameter: Tensor) -> bool:
    """Whether other ranks hold other parts of a parameter: FSDP's flat ones, and DTensors."""
    placements = getattr(parameter, "placements", None)
    if placements is not None:
        return not all(placement.is_replicate() for placement in placements)
    return is_flat_shard(parameter) or hasattr(parameter, "_sharded_size")


def _mark(tensor: Tensor, *, reads_devices: bool) -> Any:
    """A checksum as text, or as three numbers on their way; None where there is none."""
    torch: Any = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return None
    if tensor.device.type == "cpu":
        return _of_memory(tensor.detach().contiguous())
    if tensor.device.type == "meta" or not reads_devices:
        return None
    return _on_device(torch, tensor.detach().contiguous())


def _of_memory(tensor: Tensor) -> str:
    size = tensor.numel() * tensor.element_size()
    data = (ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b""
    return f"crc32:{zlib.crc32(data):08x}"


def _on_device(torch: ModuleType, tensor: Tensor) -> Any:
    """Sums over all words, and over rows and columns of them by their places, in 64 bits."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(tensor.element_size(), torch.int64)
    words = tensor.reshape(-1).view(whole)
    fill = -words.numel() % _COLUMNS
    if fill:
        words = torch.nn.functional.pad(words, (0, fill))
    table = words.view(-1, _COLUMNS)
    sums = [table.sum(dim=axis, dtype=torch.int64) for axis in (0, 1)]
    placed = [(s * torch.arange(1, len(s) + 1, device=s.device)).sum() for s in sums]
    return torch.stack([sums[0].sum(), *placed])


def _fetch(torch: ModuleType, marks: list[Any]) -> list[str | None]:
    """The checksums as text; those of each device are fetched at once."""
    waiting = [mark for mark in marks if mark is not None and not isinstance(mark, str)]
    numbers: dict[int, list[int]] = {}
    for device in dict.fromkeys(mark.device for mark in waiting):
        there = [mark for mark in waiting if mark.device == device]
        values = torch.stack(there).tolist()
        numbers.update({id(mark): value for mark, value in zip(there, values, strict=True)})
    return [m if m is None or isinstance(m, str) else _text(numbers[id(m)]) for m in marks]


def _text(numbers: list[int]) -> str:
    """Three sums as one text."""
    total, by_column, by_row = numbers
    mixed = total + by_column * _MULTIPLIERS[0] + by_row * _MULTIPLIERS[1]
    return f"sums:{mixed & _MASK:016x}"


def _shape(tensor: Tensor) -> str:
    return f"[{','.join(map(str, tensor.shape))}]"
