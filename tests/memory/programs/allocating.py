"""A small training that knows its memory: after each step it prints every storage alive.

One line per step: `alive STEP JSON`, the bytes of each storage by its address. Each step also keeps
one tensor of 1 234 567 bytes, made in `hoard`, of which the last three live, and one of 77 bytes,
made in `remember`, which live for ever. The file `halt` stops it between two steps, until there is
a file `go`; the file `end` ends it.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import profiler

KNOWN_BYTES = 1_234_567
REMEMBERED_BYTES = 77
KEPT = 3


def hoard(kept: list[Tensor]) -> None:
    kept.append(torch.empty(KNOWN_BYTES, dtype=torch.uint8))
    del kept[:-KEPT]


def remember(remembered: list[Tensor]) -> None:
    remembered.append(torch.empty(REMEMBERED_BYTES, dtype=torch.uint8))


def alive() -> dict[int, int]:
    """Every storage that there is: this program has no others."""
    tensors = [x, loss, *kept, *remembered, *model.parameters()]
    tensors += [p.grad for p in model.parameters() if p.grad is not None]
    tensors += [part for state in optimizer.state.values() for part in state.values()]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}


def traces() -> dict[str, Any]:
    """What a profiler could have left behind."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    functions = cast("Any", profiler)
    return {
        "on": functions._is_profiler_enabled,
        "wrapped": functions._prepare_profiler.__module__ + functions._enable_profiler.__module__,
        "profile": sys.getprofile() is None,
        "log level": ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level").value,
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept: list[Tensor] = []
    remembered: list[Tensor] = []
    step = 0
    while not Path("end").exists():
        optimizer.zero_grad()
        x = torch.randn(32, 64)
        hoard(kept)
        remember(remembered)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        step += 1
        print("alive", step, json.dumps(alive()), flush=True)
        if step == 1:
            print("before", json.dumps(traces()), flush=True)
        if Path("halt").exists() and not Path("go").exists():
            print("halted", flush=True)
            while not Path("go").exists():
                time.sleep(0.01)
        time.sleep(0.02)
    print("after", json.dumps(traces()), flush=True)
