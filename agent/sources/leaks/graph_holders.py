"""Which tensor's autograd graph keeps a storage that no Python object stands for.

Rules of this file: runs in the training thread; walks each graph once, and holds nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

from ..storage.saved_tensors import saved_tensors
from ..storage.tensor_parts import parts_of

_MOST_SAVED = 20_000


def graph_of(tensors: Sequence[Any], addresses: Sequence[set[tuple[str, int]]]) -> list[int | None]:
    """For each kind of storage, the number of another tensor whose graph keeps one of them.

    Args:
        tensors: One of each kind; None where only autograd holds it.
        addresses: Where all of each kind are.
    """
    missing = set(range(len(tensors)))
    found: list[int | None] = [None] * len(tensors)
    torch: Any = sys.modules["torch"]
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        for number, tensor in enumerate(tensors):
            if tensor is None or tensor.grad_fn is None or not missing:
                continue
            for saved in islice(saved_tensors([tensor.grad_fn]), _MOST_SAVED):
                for part in parts_of(saved.tensor):
                    place = (part.device, part.address)
                    held = [o for o in missing if o != number and place in addresses[o]]
                    for other in held:
                        found[other] = number
                    missing.difference_update(held)
    return found
