"""What a model is given: C and Python see the same of it."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from probing.agent.sources.data.inputs import Inputs, references
from probing.agent.sources.data.shapes import new_size_of, size_of
from probing.ring import native

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(native.IN_C is None, reason="the C part is not built for this Python"),
]


class Odd(torch.Tensor):
    """A tensor of another class, which is not looked at."""


def _given() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments of models."""
    made = torch.ones(2, 3, requires_grad=True) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)])
    values: list[Any] = [
        torch.ones(4, 8),
        torch.ones(4, 8, dtype=torch.int64),
        torch.ones(4, 8, dtype=torch.complex64),
        torch.ones(4, 8, dtype=torch.bool),
        torch.ones(4, 8, 2, dtype=torch.int32),
        torch.tensor(1.0),
        torch.ones(0, 3, dtype=torch.int64),
        torch.ones(5, device="meta"),
        torch.ones(2, 3).to_sparse(),
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(3).as_subclass(Odd),
        *(made, nested, None, 5, "text", [torch.ones(1)], object()),
    ]
    for value in values:
        yield (value,), {}
        yield (), {"x": value}
        yield (None, value, torch.ones(7)), {"y": torch.ones(9, 9, dtype=torch.int64)}
    yield (), {}
    yield tuple(values), {str(at): value for at, value in enumerate(values)}


def test_sizes_are_the_same() -> None:
    """Of whatever is given, by place or by name."""
    in_c = new_size_of()
    assert in_c is not size_of
    for args, kwargs in _given():
        assert in_c(args, kwargs) == size_of(args, kwargs)


def test_sizes_are_the_same_within_transforms() -> None:
    """What is mapped over counts for all that it is called for at once."""
    in_c, seen = new_size_of(), []

    def look(x: Any, tokens: Any) -> Any:
        seen.append((in_c((x,), {}), size_of((x,), {})))
        seen.append((in_c((tokens,), {}), size_of((tokens,), {})))
        return x.sum()

    tokens = torch.ones(5, 2, 3, dtype=torch.int64)
    torch.func.vmap(look)(torch.ones(5, 2, 3), tokens)
    torch.func.vmap(torch.func.vmap(look))(torch.ones(5, 2, 3), tokens)
    torch.func.grad(look)(torch.ones(2, 3), tokens[0])
    assert len(seen) == 6
    assert all(one == other for one, other in seen)
    assert seen[1][0] == ((2, 3), 10, 30)


def test_nothing_is_told_while_a_call_is_traced() -> None:
    """Sizes are tensors then."""
    in_c, seen = new_size_of(), []

    def look(x: Any) -> Any:
        seen.append((in_c((x,), {}), size_of((x,), {})))
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(look, torch.ones(3))
    assert seen[0] == ((None, None, None),) * 2


def test_references_are_the_same() -> None:
    """To the same tensors, in the same order, and no more than are asked for."""
    for args, kwargs in _given():
        for most in (32, 3, 0):
            one = native.IN_C.references(torch.Tensor, most, args, kwargs)
            assert one == references(torch.Tensor, most, args, kwargs)


def test_nothing_is_kept_of_what_was_given() -> None:
    """A tensor is freed as ever, and the arguments are referred to no more than before."""
    inputs, tensor = Inputs(), torch.ones(4, 8, dtype=torch.int64)
    args, kwargs = (tensor,), {"again": tensor}
    before = [sys.getrefcount(one) for one in (tensor, args, kwargs, torch.Tensor, None)]
    in_c = new_size_of()
    for _ in range(100):
        inputs.root_called(args, kwargs)
        in_c(args, kwargs)
    after = [sys.getrefcount(one) for one in (tensor, args, kwargs, torch.Tensor)]
    assert after[:3] == before[:3]
    assert inputs.alive() == [tensor] * 2 or len(inputs.alive()) > 0
    del tensor, args, kwargs
    gc.collect()
    assert inputs.alive() == []


def test_calls_that_are_none_of_ours_are_refused() -> None:
    """They raise."""
    refused: list[tuple[Any, ...]] = [
        (),
        (torch.Tensor, 1, [], {}),
        (torch.Tensor, "many", (), {}),
    ]
    for arguments in refused:
        with pytest.raises(TypeError):
            native.IN_C.references(*arguments)
        with pytest.raises(TypeError):
            native.IN_C.size_of(*arguments)
