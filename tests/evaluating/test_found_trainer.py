"""The name `trainer` stands for what goes through the training, whatever else works for it."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from probing.agent.sources.model.known_names import _trainer


class Trainer:
    """Stands for that of a framework."""


class Accelerator:
    """Stands for what one of them works by."""


@pytest.fixture
def frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are imported."""
    for module, kind in (
        ("transformers.trainer", Trainer),
        ("accelerate.accelerator", Accelerator),
    ):
        fake = ModuleType(module)
        setattr(fake, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, module, fake)


@pytest.mark.usefixtures("frameworks")
def test_a_trainer_comes_before_what_works_for_it() -> None:
    """In whichever order the garbage collector lists them."""
    accelerator = Accelerator()
    assert _trainer() is accelerator
    first = Trainer()
    later = Accelerator()
    assert _trainer() is first
    assert later is not accelerator
