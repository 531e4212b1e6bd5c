"""What a DataLoader is set up with, as its iterators have it.

Rules of this file: reads plain attributes of torch's own iterators, at one go each, and runs no
code of theirs; in any thread.
"""

from __future__ import annotations

from typing import Any

Setup = dict[str, "str | int | bool | None"]


def setup_of(iterator: Any, batches: int | None) -> Setup:
    """The columns of python.dataloaders that stay the same.

    Args:
        batches: How many an epoch has.
    """
    size = getattr(iterator._index_sampler, "batch_size", None)
    of_batches = iterator._index_sampler  # a sampler of batches names that of samples
    sampler = getattr(of_batches, "sampler", of_batches)
    shuffles = getattr(sampler, "shuffle", None)
    return {
        "dataset": type(iterator._dataset).__name__,
        "batches": batches,
        "batch_size": size if type(size) is int and iterator._auto_collation else None,
        "num_workers": iterator._num_workers,
        "prefetch_factor": iterator._prefetch_factor if iterator._num_workers > 0 else None,
        "sampler": type(sampler).__name__,
        "sampler_shuffles": shuffles if type(shuffles) is bool else None,
        "pin_memory": bool(iterator._pin_memory),
        "persistent_workers": bool(iterator._persistent_workers),
    }
