"""Gradients that are asked for in a training whose steps take longer than an answer may."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="these are facts about its parameters")

import torch

from probing.agent.sources.parameters import rows
from probing.agent.sources.shared.recording import Recording
from tests.harness.accelerators import NoAccelerator
from tests.unit.memory.test_oom_sources import Watched

pytestmark = pytest.mark.torch

SLOW_NS, FAST_NS = 60_000_000_000, 50_000_000


class Asked:
    """A question that no step's end comes in time for."""

    def __init__(self, recording: Recording) -> None:
        self.training = SimpleNamespace(watched=lambda: recording)
        self.waits = 0

    def wait(self, *_: object, **__: object) -> str:
        """It has been waited for as long as may be."""
        self.waits += 1
        return "late"

    def finds_still(self) -> bool:
        """The training goes on."""
        return False


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """A training of slow steps, in the midst of one."""
    found = Watched(tmp_path, NoAccelerator()).recording
    found.rows.took_ns = SLOW_NS
    return found


@pytest.fixture
def layer(recording: Recording) -> torch.nn.Linear:
    """What it trains."""
    made = torch.nn.Linear(4, 1)
    recording.objects.roots.add(made)
    return made


def end_step(recording: Recording, took_ns: int = SLOW_NS) -> None:
    """A step ends."""
    recording.step += 1
    recording.rows.took_ns = took_ns
    recording.safe_points.step_ended()


def is_looking(recording: Recording) -> bool:
    """Whether the ends of its steps are looked at."""
    is_known = recording.looks.slow_steps is not None
    assert recording.safe_points.waiting == is_known
    return is_known


def told(question: Any) -> tuple[set[bool | None], str | None]:
    """Which gradients the layer is told to have, and the note."""
    answer = rows(question)
    found = [row for row in answer.dicts() if row["root"] == "Linear" and row["numel"] in {1, 4}]
    return {row["has_gradient"] for row in found}, answer.note


def test_who_asks_again_is_told_of_the_last_end(
    recording: Recording, layer: torch.nn.Linear
) -> None:
    """At once, and as it was then: in the midst of a step the gradients may be gone."""
    question = Asked(recording)
    found, note = told(question)
    assert (found, question.waits) == ({None}, 1)
    assert note is not None
    assert note.startswith("no step has ended within 8 s")
    layer(torch.ones(2, 4)).sum().backward()
    end_step(recording)
    layer.zero_grad()
    assert told(question) == ({True}, None)
    end_step(recording)
    assert told(question) == ({False}, None)
    assert question.waits == 1


def test_no_end_is_looked_at_once_steps_are_fast_or_nobody_asks(
    recording: Recording, layer: torch.nn.Linear
) -> None:
    """Nothing of it stays in the training."""
    assert layer.weight.grad is None
    question = Asked(recording)
    told(question)
    end_step(recording, FAST_NS)
    assert not is_looking(recording)
    told(question)
    assert is_looking(recording)
    recording.step += 1000
    end_step(recording)
    assert not is_looking(recording)
