"""The formulas for FLOPs, layer by layer, against torch's own counter of operations."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.torch

Make = Callable[[Any], tuple[Any, tuple[Any, ...]]]


def _packed(torch: Any) -> Any:
    rows = [torch.randn(length, 6) for length in (5, 3, 2)]
    return torch.nn.utils.rnn.pack_sequence(rows)


LAYERS: dict[str, Make] = {
    "linear": lambda t: (t.nn.Linear(5, 7), (t.randn(2, 3, 5),)),
    "linear of one row": lambda t: (t.nn.Linear(5, 7, bias=False), (t.randn(1, 5),)),
    "conv1d": lambda t: (t.nn.Conv1d(4, 6, 3, dilation=2), (t.randn(2, 4, 20),)),
    "conv2d in groups": lambda t: (t.nn.Conv2d(4, 8, (3, 2), groups=2), (t.randn(2, 4, 9, 9),)),
    "conv2d unbatched": lambda t: (t.nn.Conv2d(4, 8, 3, stride=2), (t.randn(4, 9, 9),)),
    "conv3d": lambda t: (t.nn.Conv3d(2, 3, 2, padding=1), (t.randn(1, 2, 4, 5, 6),)),
    "transposed": lambda t: (
        t.nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2),
        (t.randn(2, 4, 5, 5),),
    ),
    "lstm": lambda t: (t.nn.LSTM(6, 5, num_layers=2), (t.randn(4, 3, 6),)),
    "lstm of packed rows": lambda t: (t.nn.LSTM(6, 5), (_packed(t),)),
    "lstm both ways, projected": lambda t: (
        t.nn.LSTM(6, 5, num_layers=2, bidirectional=True, proj_size=2, batch_first=True),
        (t.randn(3, 4, 6),),
    ),
    "gru": lambda t: (t.nn.GRU(6, 5, bidirectional=True), (t.randn(4, 3, 6),)),
    "rnn": lambda t: (t.nn.RNN(6, 5), (t.randn(4, 3, 6),)),
    "lstm cell": lambda t: (t.nn.LSTMCell(6, 5), (t.randn(3, 6),)),
    "gru cell": lambda t: (t.nn.GRUCell(6, 5), (t.randn(3, 6),)),
    "attention": lambda t: (
        t.nn.MultiheadAttention(8, 2),
        (t.randn(4, 3, 8), t.randn(6, 3, 8), t.randn(6, 3, 8)),
    ),
    "attention of other widths": lambda t: (
        t.nn.MultiheadAttention(8, 2, kdim=5, vdim=3, batch_first=True),
        (t.randn(3, 4, 8), t.randn(3, 6, 5), t.randn(3, 6, 3)),
    ),
    "attention unbatched": lambda t: (
        t.nn.MultiheadAttention(8, 4, add_bias_kv=True),
        (t.randn(4, 8), t.randn(6, 8), t.randn(6, 8)),
    ),
    "embedding": lambda t: (t.nn.Embedding(9, 4), (t.randint(0, 9, (2, 3)),)),
}


def counted(module: Any, args: tuple[Any, ...]) -> tuple[int | None, int]:
    """What our formula and torch's counter say of one call."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from probing.agent.sources.calls.call_shapes import read_tensors
    from probing.agent.sources.model.flops import Formulas, Shapes

    # oneDNN runs a whole LSTM as one operation, which the counter takes for free.
    was_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with FlopCounterMode(display=False) as counter:
            result = module(*args)
    finally:
        torch._C._set_mkldnn_enabled(was_enabled)
    given, returned = (read_tensors(value, torch) for value in (args, result))
    shapes = Shapes(dict(given.named), tuple(shape for _, shape in returned.named))
    return Formulas().count(module, shapes), counter.get_total_flops()


@pytest.mark.parametrize("name", LAYERS)
def test_a_formula_counts_what_torch_counts(name: str) -> None:
    """Each layer's formula gives exactly what FlopCounterMode sees in a real call."""
    import torch

    ours, by_torch = counted(*LAYERS[name](torch))
    assert ours == by_torch


def test_norms_are_counted_by_the_published_rule() -> None:
    """Norms, which torch's counter takes for free, cost fvcore's numbers per element."""
    import torch

    x, nn = torch.randn(2, 6, 4, 4), torch.nn
    for module, each in (
        (nn.LayerNorm(4), 5),
        (nn.LayerNorm(4, elementwise_affine=False), 4),
        (nn.GroupNorm(2, 6), 5),
        (nn.BatchNorm2d(6), 5),
        (nn.BatchNorm2d(6, affine=False), 4),
        (nn.BatchNorm2d(6).eval(), 2),
        (nn.InstanceNorm2d(6), 4),
        (nn.RMSNorm(4), 4),
    ):
        assert counted(module, (x,))[0] == each * x.numel(), module


def test_what_is_not_known_has_no_number() -> None:
    """A layer without a formula, or with a forward of its own, has none: not zero."""
    import torch

    class Scaled(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 2

    patched = torch.nn.Linear(4, 4)
    patched.forward = lambda x: x  # type: ignore[assignment]
    x = torch.randn(2, 4)
    for module in (torch.nn.GELU(), Scaled(4, 4), patched, torch.nn.Dropout(0.5)):
        assert counted(module, (x,))[0] is None, module
    for free in (torch.nn.Identity(), torch.nn.Dropout(0.5).eval(), torch.nn.Flatten()):
        assert counted(free, (x,))[0] == 0, free


def test_shapes_are_read_without_the_code_of_what_holds_them() -> None:
    """Tensors are found in containers to a bounded depth and number, and nothing else is run."""
    import torch

    from probing.agent.sources.calls.call_shapes import read_tensors

    class Loud(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("the user's own code was run")

    x = torch.zeros(2, 3, dtype=torch.float16)
    assert read_tensors(Loud(a=x, b=[x, 5, None]), torch).text == "a=[2, 3], b.0=[2, 3]"
    assert read_tensors((x, {"k": x}), torch).text == "[2, 3], 1.k=[2, 3]"
    assert read_tensors(x, torch) == (((("", (2, 3))),), "float16", 12, None)
    assert read_tensors([torch.zeros(())] * 100, torch).text == ", ".join(
        [*["[]"] * 8, "and 56 more"]
    )
    images = torch.zeros(1, 2, 3, 3)
    last = images.to(memory_format=torch.channels_last)
    assert read_tensors([images, x], torch).layouts == "contiguous"
    assert read_tensors([last, last[:, :1]], torch).layouts == "channels_last, strided"
    assert read_tensors(torch.zeros(4, 2, 1, 1), torch).layouts == "either"
    deep: Any = x
    for _ in range(sys.getrecursionlimit() * 2):
        deep = [deep]
    assert read_tensors(deep, torch).text is None
    assert read_tensors("text", torch) == ((), None, None, None)


def _einsum(equation: str, *args: Any) -> Any:
    *shapes, torch = args
    return torch.einsum(equation, *(torch.randn(shape) for shape in shapes))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "fused attention": lambda t: t.nn.functional.scaled_dot_product_attention(
        t.randn(2, 4, 5, 8), t.randn(2, 4, 7, 8), t.randn(2, 4, 7, 6), is_causal=False
    ),
    "attention by names": lambda t: t.nn.functional.scaled_dot_product_attention(
        query=t.randn(3, 5, 8), key=t.randn(3, 5, 8), value=t.randn(3, 5, 8)
    ),
    "linear": lambda t: t.nn.functional.linear(t.randn(2, 3, 4), t.randn(5, 4), t.randn(5)),
    "matmul": lambda t: t.matmul(t.randn(2, 3, 4), t.randn(4, 5)),
    "matmul in batches": lambda t: t.matmul(t.randn(6, 3, 4), t.randn(6, 4, 5)),
    "vector": lambda t: t.matmul(t.randn(3, 4), t.randn(4)),
    "bmm": lambda t: t.bmm(t.randn(2, 3, 4), t.randn(2, 4, 5)),
    "baddbmm": lambda t: t.baddbmm(t.randn(2, 3, 5), t.randn(2, 3, 4), t.randn(2, 4, 5)),
    "addmm": lambda t: t.addmm(t.randn(5), t.randn(3, 4), t.randn(4, 5)),
    "operator": lambda t: t.randn(2, 3, 4) @ t.nn.Parameter(t.randn(4, 5)),
    "method": lambda t: t.randn(6, 3, 4).matmul(t.randn(6, 4, 5)),
    "bmm as method": lambda t: t.randn(2, 3, 4).bmm(t.randn(2, 4, 5)),
    "addmm as method": lambda t: t.randn(5).addmm(t.randn(3, 4), t.randn(4, 5)),
    **{
        f"einsum {equation}": functools.partial(_einsum, equation, *shapes)
        for equation, *shapes in (
            ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
            ("ij,jk", (2, 3), (3, 4)),
            ("b i d, b j d -> b i j", (2, 3, 4), (2, 5, 4)),
            ("...ij,jk->...ik", (2, 6, 3, 4), (4, 5)),
            ("bij,jk->ik", (2, 3, 4), (4, 5)),
            ("ij,ij->ij", (2, 3), (2, 3)),
            ("i,j->ij", (2,), (3,)),
            ("ij->ji", (2, 3)),
        )
    },
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_counted_as_torch_counts(name: str) -> None:
    """What a module calls by itself gives what FlopCounterMode sees, and is as before behind it."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from probing.agent.sources.model.function_flops import FunctionFlops

    counted: list[int] = []
    functions, original = FunctionFlops(counted.append), torch.nn.functional.linear
    functions.start()
    try:
        FUNCTIONS[name](torch)
    finally:
        functions.stop()
    assert torch.nn.functional.linear is original
    assert not {"matmul", "bmm", "addmm"} & set(vars(torch.Tensor)), "methods are inherited again"
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        FUNCTIONS[name](torch)
    # torch's counter takes no product of a matrix and a vector for one.
    expected = 24 if name == "vector" else counter.get_total_flops()
    assert sum(counted) == expected
    assert len(counted) == 1
