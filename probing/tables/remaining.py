"""What is on record of what a live table showed, once its process has ended.

Rules of this file: names of recorded tables, and of commands that read them.
"""

from __future__ import annotations

_IN_USE = "python.memory has what was in use"
_CALLS = "python.torch_trace has the calls of its modules"
_REMAINS = {
    "activations": _IN_USE,
    "dataloaders": "python.batches has its batches, and how long each was waited for",
    "host_memory": _IN_USE,
    "memory_categories": _IN_USE,
    "memory_segments": _IN_USE,
    "models": _CALLS,
    "modules": _CALLS,
    "optimizers": "python.steps has the learning rates",
    "sources": "probing.overhead has what recording cost",
    "tensors": _IN_USE,
    "threads": "`backtrace` has the calls that had not returned",
}


def what_remains(table: str) -> str:
    """What is to be added to the sentence that a live table can no longer be asked."""
    return f"; {_REMAINS[table]}" if table in _REMAINS else ""
