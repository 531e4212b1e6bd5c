"""What kind of work an operator or a kernel does, by its name.

Rules of this file: ordered rules, the first that fits wins. Kernels that Inductor has fused come
first, as their names list what was fused and what that was a part of: a product only by a template
of its own (`triton_tem`), a copy only where nothing else is named. Attention comes before matrix
products because its kernels are called after both; matrix products come before memory because the
names of their templates speak of copies. A short name such as ``mm`` fits whole words only.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..tables import KERNEL_CATEGORIES

OTHER = KERNEL_CATEGORIES[-1]
_FUSED = r"triton_(?:for|mix|per|poi|red|spl|unk)_fused"
_RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "memory",
        re.compile(
            _FUSED + r"(?:_(?:_to_copy|(?:lift_fresh_|slice_)?copy_?|clone|cat|stack|fill_?|repeat"
            r"|(?:new_)?(?:empty|full|ones|zeros)(?:_like|_strided)?|constant_pad_nd|as_strided|t"
            r"|alias|detach|expand|permute|reshape|select|slice|split(?:_with_sizes)?|transpose"
            r"|unbind|unsqueeze|squeeze|(?:_unsafe_)?view))+(?:_\d+)?$"
        ),
    ),
    (OTHER, re.compile(_FUSED)),
    (
        "communication",
        re.compile(
            r"nccl|rccl|gloo|c10d|record_param_comms|all_?reduce|all_?gather|reduce_?scatter"
            r"|all_?to_?all|nvshmem|symm_mem",
            re.IGNORECASE,
        ),
    ),
    (
        "attention",
        re.compile(r"scaled_?dot_?product|flash|fmha|sdpa|attention|(?<![a-z])attn", re.IGNORECASE),
    ),
    (
        "gemm",
        re.compile(
            r"gemm|gemv|cutlass|nvjet|cublas|xmma|split_?k_?reduce|matmul|einsum"
            r"|convol|(?<![a-z])conv[123]d|(?<![a-z])conv_|dgrad|wgrad|fprop"
            r"|(?<![a-z])(?:add|badd|addb|b|int_|scaled_|grouped_)?b?mm(?![a-z])"
            r"|(?<![a-z])(?:linear|v?dot|(?:add)?mv|addr|ger)(?:_|$)",
            re.IGNORECASE,
        ),
    ),
    (
        "memory",
        re.compile(
            r"memcpy|memset|copy|(?<![a-z])(?:empty|zeros?|ones|full|fill|clone|contiguous|cat|stack"
            r"|to|pin_memory|resize|lift_fresh)(?:_|$)"
            r"|catarray|malloc|fillfunctor",
            re.IGNORECASE,
        ),
    ),
)
_NAMESPACE = re.compile(r"^(?:aten|prims|torch|mkldnn|mkldnn_prepacked)::")


@lru_cache(maxsize=4096)
def category_of(name: str) -> str:
    """One of `KERNEL_CATEGORIES`."""
    bare = _NAMESPACE.sub("", name)
    return next((category for category, rule in _RULES if rule.search(bare)), OTHER)
