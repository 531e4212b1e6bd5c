"""What a DataLoader is set up with, as its iterators have it.

Rules of this file: reads plain attributes of torch's own iterators, at one go each, and the names
in the code of a dataset's module, and runs no code of theirs; in any thread.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from ....own_files import is_installed

_ASKS = "get_worker_info"
_MOST_CODES = 10_000
"""Of a module, with those inside of others."""
_ITERABLE = 1
"""As torch numbers the kind of a dataset that is iterated."""

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
        "divides_stream": _divides_stream(iterator),
    }


def _divides_stream(iterator: Any) -> bool | None:
    """Whether workers that iterate one dataset are told apart; None where that is no question.

    Nor is it known of a dataset of a library, which may ask anywhere.
    """
    if iterator._num_workers < 2 or int(iterator._dataset_kind) != _ITERABLE:
        return None
    if getattr(iterator, "_worker_init_fn", None) is not None:
        return True
    module = sys.modules.get(type(iterator._dataset).__module__)
    space = dict(vars(module)) if module is not None else {}
    path = space.get("__file__")
    if not isinstance(path, str) or is_installed(path):
        return None
    return any(_ASKS in code.co_names for code in _codes_in(space))


def _codes_in(space: dict[str, Any]) -> Iterator[CodeType]:
    """The code of a module's functions and of its classes' methods, and all inside of those."""
    classes = [dict(vars(value)) for value in space.values() if isinstance(value, type)]
    values = [value for names in (space, *classes) for value in names.values()]
    waiting = [value.__code__ for value in values if type(value) is FunctionType]
    for _ in range(_MOST_CODES):
        if not waiting:
            return
        code = waiting.pop()
        yield code
        waiting += [inner for inner in code.co_consts if type(inner) is CodeType]
