"""Actions where DistributedDataParallel does not make all ranks alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from probing.errors import ActRefused
from probing.messages.about.act import Checkpoint, NanGuard

pytestmark = pytest.mark.torch


def scene_of(model: Any, *, ranks: int, ignored: set[str]) -> Any:
    """A rank of four, whose model is in a DDP over some of them."""
    import torch

    from probing.agent.sources.actions.targets.scene import Scene

    class Rank(Scene):
        def __init__(self, names: dict[str, Any]) -> None:
            self._model, self.names, self.ranks, self.until = None, names, 4, 0.0

        def world_size(self) -> int:
            return 4

    wrapper = torch.nn.parallel.DistributedDataParallel
    replica: Any = wrapper.__new__(wrapper)
    torch.nn.Module.__init__(replica)
    replica.module = model
    replica.process_group = SimpleNamespace(size=lambda: ranks)
    replica.parameters_to_ignore = ignored
    return Rank({"model": replica, "optimizer": torch.optim.SGD(model.parameters(), 0.1)})


@pytest.mark.parametrize(
    ("ranks", "ignored", "is_done"), [(4, set(), True), (2, set(), False), (4, {"1.bias"}, False)]
)
def test_no_step_is_skipped_where_some_gradients_are_a_ranks_own(
    ranks: int, ignored: set[str], is_done: bool
) -> None:
    """Those of a shard or a stage, and of parameters that DDP was told to leave alone."""
    import torch

    from probing.agent.sources.actions.nan_guard import NanGuarding

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    scene, guarding = (
        scene_of(model, ranks=ranks, ignored=ignored),
        NanGuarding(NanGuard(do="skip")),
    )
    guarding._optimizers = [scene.names["optimizer"]]
    if is_done:
        guarding._refuse_skipping(scene)
        return
    with pytest.raises(ActRefused, match="over all 4 ranks"):
        guarding._refuse_skipping(scene)


def test_no_checkpoint_is_written_of_one_part_of_a_model() -> None:
    """The ranks that are in another group may have the rest of it."""
    import torch

    from probing.agent.sources.actions.checkpoint import Checkpointing

    scene = scene_of(torch.nn.Linear(2, 1), ranks=2, ignored=set())
    with pytest.raises(ActRefused, match="other parts of the model"):
        Checkpointing(Checkpoint(path="/nowhere/at-all.pt")).prepare(scene)
