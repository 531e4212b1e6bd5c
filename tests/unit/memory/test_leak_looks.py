"""What a watch tells of its looks at the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="these are facts about its tensors")

import torch

from probing.agent.sources.leaks.looks import Looks
from probing.agent.sources.leaks.watch import LeakWatch
from probing.messages.common import ArmRequest
from tests.harness.accelerators import NoAccelerator
from tests.unit.memory.test_oom_sources import Passing, Watched

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("is_alone", [True, False])
def test_gradients_that_cannot_be_told_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_alone: bool
) -> None:
    """They are counted as other tensors, where another thread may let go of them."""
    recording, layer = Watched(tmp_path, NoAccelerator()).recording, torch.nn.Linear(64, 64)
    layer(torch.ones(1, 64)).sum().backward()
    recording.objects.roots.add(layer)
    monkeypatch.setattr(recording.trainers, "is_alone", lambda _: is_alone)
    recording.safe_points.at_work = Passing()
    watch = LeakWatch(recording, NoAccelerator(), ArmRequest(what="leak", steps=3), 1)
    watch._count()
    assert ("gradients" in watch.counts[0].categories) is is_alone
    note = "in 1 of 1 looks gradients were not told from other tensors"
    assert any(text.startswith(note) for text in watch.notes()) is not is_alone
    watch.end()


def test_what_there_was_no_time_for_is_told() -> None:
    """Each in a sentence, and nothing of what was whole."""
    assert Looks(5_000_000, None, 0, 0).told(4) == (
        "the training was held for at most 5 ms at a time",
    )
    told = Looks(5_000_000, 70_000, 3_000, 2).told(4)
    assert [text.partition(" ")[0] for text in told] == ["the", "the", "3,000", "in"]
