"""What besides parameters should be the same on all ranks: options of optimizers, random states.

Rules of this file: runs in the training thread, at the end of a step; reads numbers that lie in
main memory and never those of a device. The states of random generators are looked at and not
moved on.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..accelerator import random_state
from ..shared.found import found_optimizers
from ..shared.recording import Recording

_LONGEST = 60
_PLAIN = (bool, int, float, str, type(None))


class Same(NamedTuple):
    """One such thing.

    Attributes:
        kind: ``optimizer`` or ``random``.
        owner: The optimizer's class.
        value: What ranks are compared by.
    """

    kind: str
    owner: str
    name: str
    value: str


def optimizer_options(recording: Recording) -> Iterator[Same]:
    """Every option of every group of the optimizers that is a plain value."""
    optimizers = recording.objects.optimizers.alive() or found_optimizers()
    for number, optimizer in enumerate(optimizers):
        owner = type(optimizer).__name__ + (f" {number}" if len(optimizers) > 1 else "")
        for place, group in enumerate(list(optimizer.param_groups)):
            yield Same("optimizer", owner, f"group {place} size", str(len(group["params"])))
            for name, value in list(group.items()):
                text = _text(value)
                if text is not None:
                    yield Same("optimizer", owner, f"group {place} {name}", text)


def random_states(*, reads_devices: bool) -> Iterator[Same]:
    """The states of the generators that a script uses without naming one."""
    torch: Any = sys.modules["torch"]
    states = {"python": repr(random.getstate()).encode()}
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        states["numpy"] = repr(numpy.get_state(legacy=False)["state"]["key"].tobytes()).encode()
    states["torch"] = bytes(torch.get_rng_state().tolist())
    on_device = random_state() if reads_devices else None
    if on_device is not None:
        states["torch device"] = on_device
    for name, data in states.items():
        yield Same("random", "", name, f"crc32:{zlib.crc32(data):08x}")


def _text(value: Any) -> str | None:
    """A plain value as text; None for any other."""
    if isinstance(value, sys.modules["torch"].Tensor):
        is_here = value.device.type == "cpu" and value.numel() == 1
        return repr(value.item())[:_LONGEST] if is_here else None
    if type(value) in (tuple, list):
        parts = [_text(item) for item in value]
        return None if None in parts else f"({', '.join(map(str, parts))})"[:_LONGEST]
    return repr(value)[:_LONGEST] if type(value) in _PLAIN else None
