"""Actions that read gradients, on those of other kinds: complex, sparse, in half precision."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing.agent.sources.actions.clipping import clip  # noqa: E402
from probing.agent.sources.actions.nan_guard import numbers_of  # noqa: E402

pytestmark = pytest.mark.torch


def _sparse(*, is_complex: bool = False) -> Any:
    """A hundred rows of ones, all of one index."""
    ones = torch.ones(100, 4, dtype=torch.cfloat if is_complex else torch.float)
    places = torch.zeros(1, 100, dtype=torch.long)
    gradient = torch.sparse_coo_tensor(places, ones, (10, 4), check_invariants=True)
    assert not gradient.is_coalesced()
    return gradient


GRADIENTS = {
    "complex": lambda: torch.full((4,), 0.001 + 100j, dtype=torch.cfloat),
    "conjugated": lambda: torch.full((4,), 0.001 + 100j, dtype=torch.cdouble).conj(),
    "sparse": _sparse,
    "sparse, complex": lambda: _sparse(is_complex=True),
    "half": lambda: torch.full((4,), 60000.0, dtype=torch.float16),  # the square is none of those
    "double": lambda: torch.full((4,), 100.0, dtype=torch.double),
}


@pytest.mark.parametrize("kind", GRADIENTS)
def test_the_norm_of_any_gradient_is_clipped(kind: str) -> None:
    """Beside a plain one, to the norm that was asked for; a smaller one is left as it is."""
    gradient = GRADIENTS[kind]()
    parameters = [torch.nn.Parameter(torch.zeros(gradient.shape, dtype=gradient.dtype)),
                  torch.nn.Parameter(torch.zeros(3))]  # fmt: skip
    optimizer = torch.optim.SGD(parameters)
    parameters[0].grad, parameters[1].grad = gradient, torch.ones(3)
    clip(optimizer, 1.0)
    wide = torch.cdouble if gradient.is_complex() else torch.double
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    parts = [torch.linalg.vector_norm(g).item() for g in (dense.to(wide), parameters[1].grad)]
    assert math.hypot(*parts) == pytest.approx(1.0, rel=2e-3)
    before = dense.clone()
    clip(optimizer, 2.0)
    assert torch.equal(gradient.to_dense() if gradient.is_sparse else gradient, before)


@pytest.mark.parametrize("kind", GRADIENTS)
def test_the_guard_sees_a_nan_in_any_gradient(kind: str) -> None:
    """In the imaginary part, too; and none in the same gradient without it."""
    gradient = GRADIENTS[kind]()
    assert torch.isfinite(numbers_of(gradient, torch)).all()
    numbers = gradient._values() if gradient.is_sparse else gradient
    numbers[-1] = complex(0, math.nan) if gradient.is_complex() else math.nan
    assert int(torch.isnan(numbers_of(gradient, torch)).sum()) in {1, 4}
