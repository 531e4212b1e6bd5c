"""What a look at every element of gradients tells, and how often it asks a device."""

from __future__ import annotations

import math
from typing import Any

import pytest

from probing.agent.sources.numbers.gradient_tensors import fill_elements, fill_norms
from probing.ring.format import NULL_FLOAT, NULL_INT

torch: Any = pytest.importorskip("torch", reason="these are facts about its tensors")

from tests.harness.fake_cuda import FakeCuda  # noqa: E402
from tests.harness.fake_torch import installed  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_device_is_asked_once_for_all_elements() -> None:
    """Each question waits for all its work, and for the turns of whoever else uses it."""
    with installed(FakeCuda()) as cuda:
        cuda.start()
        hurt = torch.tensor([0.0, math.nan, 2.0, -math.inf])
        gradients = [torch.arange(-4.0, 4.0), hurt, torch.empty(0)]
        rows: list[dict[str, Any]] = [{"norm": norm} for norm in (9.0, math.nan, 0.0)]
        before = cuda.counts()
        fill_elements(list(zip(gradients, rows, strict=True)), 2.0)
        asked = cuda.counts() - before
    assert sum(asked[name] for name in ("item", "tolist", "bool", "float", "int")) == 1
    told = [(r["max_abs"], r["nan_count"], r["inf_count"], r["zero_share"]) for r in rows]
    assert told[:2] == [(2.0, 0, 0, 1 / 8), (1.0, 1, 1, 1 / 4)]
    assert told[2][1] == NULL_INT
    assert str(told[2][0]) == str(told[2][3]) == str(NULL_FLOAT)


def test_a_scale_that_was_halved_to_zero_leaves_no_number() -> None:
    """A scaler does so as a run diverges; what is not finite is counted all the same."""
    rows: list[dict[str, Any]] = [{}]
    fill_norms(rows, [math.nan, 1.0, 0.0])
    fill_elements([(torch.tensor([math.nan, 1.0]), rows[0])], 0.0)
    assert math.isnan(rows[0]["norm"])
    assert math.isnan(rows[0]["max_abs"])
    assert rows[0]["nan_count"] == 1
