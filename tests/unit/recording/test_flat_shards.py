"""What is told of FSDP1's parameters, of which each rank has a part."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


def test_the_norm_of_one_ranks_shards_is_not_that_of_the_gradients() -> None:
    """None is taken, where any parameter of the optimizer is a flat one or a view of that."""
    import torch
    from torch.distributed.fsdp._common_utils import _set_fsdp_flattened

    from probing.agent.sources.numbers.gradient_norms import total_norm

    parameters = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.full((4,), 2.0)
    optimizer = torch.optim.SGD(parameters)
    found = total_norm(optimizer)
    assert found is not None
    assert found[0].item() == pytest.approx((8 * 2.0**2) ** 0.5)
    _set_fsdp_flattened(parameters[1])
    assert total_norm(optimizer) is None


def test_ranks_are_not_said_to_differ_in_what_each_has_a_part_of() -> None:
    """Flat parameters are told as shards, views of them (`use_orig_params`) as well."""
    import torch
    from torch.distributed.fsdp._common_utils import _set_fsdp_flattened

    from probing.agent.sources.model.checksums import _is_shard

    parameter = torch.nn.Parameter(torch.ones(4))
    assert not _is_shard(parameter)
    _set_fsdp_flattened(parameter)
    assert _is_shard(parameter)
