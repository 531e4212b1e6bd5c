"""How many numbers of eight bits or fewer a storage holds, however they are packed.

Rules of this file: pure functions of what tensors say of themselves; no data is read, and no code
of a subclass runs. Which numbers a storage holds is told by who packed them: a type of torch's own
that packs, the shape that bitsandbytes keeps beside the bytes, the number of bits of the module, or
the tensor of the shape as it was that wraps the packed one.
"""

from __future__ import annotations

import math
from typing import Any

from ..model.tensor_facts import name_of
from ..torch_types import Module

_BITS = 8
_PACKED = {"quint4x2": 2, "quint2x4": 4, "float4_e2m1fn_x2": 2}
"""How many numbers are in a byte."""
_SMALL = frozenset({
    "int8", "uint8", "qint8", "quint8", "int4", "uint4", "int2", "uint2",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
    *_PACKED,
})  # fmt: skip
_IN_WORDS = {"qweight": "bits", "qzeros": "bits"}
"""What GPTQ and AWQ call buffers of words that are full of numbers, and where the bits are told."""


def is_small(dtype: str) -> bool:
    """Whether numbers of a type have eight bits or fewer."""
    return dtype in _SMALL


def numbers_in(outer: Any, part: Any, size: int) -> int | None:
    """How many numbers a storage holds; None where they are not quantized.

    Args:
        outer: The tensor that is known to the program.
        part: The plain tensor over the storage, which may be inside of it.
        size: The bytes of the storage.
    """
    dtype = name_of(part.dtype)
    if dtype not in _SMALL:
        return None
    if dtype in _PACKED:
        return size * _PACKED[dtype]
    if outer is not part:  # the wrapper has the shape as it was
        wrapped = math.prod(outer.shape)
        return wrapped if size < wrapped <= size * _BITS else size  # its scales are inside, too
    state = getattr(outer, "__dict__", {}).get("quant_state")
    shape = getattr(state, "__dict__", {}).get("shape")
    return size if shape is None else math.prod(int(length) for length in shape)


def numbers_in_words(module: Module, name: str, size: int) -> int | None:
    """The same of a buffer of words, by the bits that its module has of each number."""
    facts = vars(module)
    bits = facts.get(_IN_WORDS.get(name, ""), facts.get("w_bit") if name in _IN_WORDS else None)
    return size * _BITS // bits if type(bits) is int and 0 < bits <= _BITS else None
