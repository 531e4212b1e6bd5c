"""A process that somebody else attaches to: ``python -m tests.gpu.attached [--uses] [--fake]``.

Trains, with ``--uses`` on the device, else on the CPU. Each line of its input is answered by one of
JSON; it ends with its input.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from typing import Any

import torch

from tests.gpu.devices import Device, device_of
from tests.gpu.trainings import Small


class _OnHost:
    """A device for `Small` that is none."""

    is_fake = False
    here = torch.device("cpu")

    def launched(self, seconds: float) -> None:
        """The host has done it itself."""

    def tick(self, seconds: float) -> None:
        """Time goes by itself."""


def main(*, uses: bool, is_fake: bool) -> None:
    """Train until the input ends."""
    device, where = device_of(is_fake=is_fake), None
    if uses:
        device.begin()
        where = device
    training: Any = Small(where or _OnHost(), width=32)  # type: ignore[arg-type]
    asked: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(asked,), daemon=True).start()
    while True:
        training.steps(5)
        training.losses.clear()
        try:
            line = asked.get(timeout=0.01)
        except queue.Empty:
            continue
        if not line:
            return
        print(json.dumps(_facts(device, uses=uses)), flush=True)


def _read(asked: queue.Queue[str]) -> None:
    """Hand on what is asked, and that nothing more is."""
    for line in sys.stdin:
        asked.put(line)
    asked.put("")


def _facts(device: Device, *, uses: bool) -> dict[str, Any]:
    """What is to be as it was."""
    inner: Any = torch._C
    ask = inner._cuda_hasPrimaryContext
    return {
        "steps": torch.nn.Module.__call__ is not torch.nn.Module._wrapped_call_impl,
        "initialized": torch.cuda.is_initialized(),
        "contexts": [n for n in range(torch.cuda.device_count()) if ask(n)],
        "free": torch.cuda.mem_get_info(device.here)[0] if uses else None,
    }


if __name__ == "__main__":
    main(uses="--uses" in sys.argv[1:], is_fake="--fake" in sys.argv[1:])
