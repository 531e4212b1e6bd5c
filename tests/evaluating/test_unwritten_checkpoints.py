"""Checkpoints that cannot be written, of which nothing stays in their folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from probing.agent.sources.actions.checkpoint import Checkpointing  # noqa: E402
from probing.errors import ActRefused  # noqa: E402
from probing.messages.about.act import Checkpoint  # noqa: E402

pytestmark = pytest.mark.torch

without_name = lambda x: x  # noqa: E731 - pickle finds it by no name


class Preempted(Exception):
    """What the script's handler of a signal raises."""


@pytest.fixture
def preempted() -> Iterator[None]:
    """A script that raises when it gets SIGUSR1."""

    def stop(_number: int, _frame: object) -> None:
        raise Preempted

    before = signal.signal(signal.SIGUSR1, stop)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_a_state_that_cannot_be_pickled_is_refused(tmp_path: Path) -> None:
    """A function without a name is told as what cannot be written, and no file is left."""
    writing = Checkpointing(Checkpoint(path=str(tmp_path / "a.pt")))
    with pytest.raises(ActRefused, match="could not be written"):
        writing._write({"w": torch.zeros(1000), "f": without_name})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("preempted")
def test_what_a_handler_of_signals_raises_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the script's own, and no file is left either."""
    save = torch.serialization._save

    def interrupted(*args: object, **kwargs: object) -> None:
        save(*args, **kwargs)
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(torch.serialization, "_save", interrupted)
    writing = Checkpointing(Checkpoint(path=str(tmp_path / "a.pt")))
    with pytest.raises(Preempted):
        writing._write({"w": torch.zeros(1000)})
    assert list(tmp_path.iterdir()) == []
