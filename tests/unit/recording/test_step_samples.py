"""How many samples a step was trained by, from the sizes of its batches and calls."""

from __future__ import annotations

from typing import Any

import pytest

from probing.agent.sources.steps.rows.micro_batch_rows import MicroBatch
from probing.agent.sources.steps.rows.step_samples import StepSamples

pytestmark = pytest.mark.anypython

MODEL, OTHER = 1, 2


def _waited(samples: int | None, tokens: int | None = None) -> Any:
    """A batch is waited for."""
    return lambda batch: batch.came(samples, tokens)


def _called(*shape: int, root: int = MODEL, trains: bool = True, tokens: bool = False) -> Any:
    """A root is called; without sizes with what has no tensor among its arguments."""
    size = shape or None, shape[0] if shape else None, shape[0] * shape[1] if tokens else None
    return lambda batch: batch.called(root, size, trains=trains)


def _failed(batch: MicroBatch) -> None:
    """The last call has failed."""
    batch.call_failed()


def _ahead(batch: MicroBatch) -> None:
    """The calls behind the first are other micro-batches'."""
    batch.is_one_of_several()


def _step(*micro_batches: list[Any]) -> tuple[tuple[int | None, int | None], list[int | None]]:
    """Samples and tokens of a step, and the samples of its micro-batches."""
    sizes, own = StepSamples(), []
    for events in micro_batches:
        batch = MicroBatch(0, 0, [])
        for event in events:
            event(batch)
        sizes.batch_ended(batch)
        own.append(batch.samples)
    return sizes.told(), own


CASES = {
    "plain": ([_waited(64), _called(64, 3)], 64),
    "one ahead": ([_waited(32), _called(64, 3)], 64),
    "joined, or two views": ([_waited(64), _called(128, 3)], 128),
    "two batches": ([_waited(64), _waited(64), _called(128, 3)], 128),
    "filtered": ([_waited(64), _called(20, 3)], 20),
    "in pieces, and one pass": ([_waited(64), _called(32, 3), _called(32, 3)], 64),
    "in pieces, not all of them": ([_waited(64), _called(16, 3), _called(16, 3)], 32),
    "all calls ahead": ([_waited(64), _called(32, 3), _called(32, 3), _ahead], 32),
    "two models": ([_waited(64), _called(32, 3), _called(32, 3, root=OTHER)], 32),
    "length first": ([_waited(64), _called(10, 64, 3)], 64),
    "no tensor in the call": ([_waited(64), _called()], 64),
    "and a head behind it": ([_waited(64), _called(), _called(640, 3, root=OTHER)], 64),
    "no batch": ([_called(5, 3)], 5),
    "without gradients before": ([_called(64, 3, trains=False), _called(5, 3)], 5),
    "a teacher": ([_waited(8), _called(9, 3, root=OTHER, trains=False), _called(8, 3)], 8),
    "done again in smaller parts": ([_waited(64), _called(64, 3), _failed, _called(16, 3)], 16),
    "nothing": ([_called()], None),
}


@pytest.mark.parametrize(("events", "expected"), CASES.values(), ids=CASES)
def test_samples_are_those_the_model_is_called_with(
    events: list[Any], expected: int | None
) -> None:
    """The loader's batch counts where a call does not tell, or has all of it."""
    assert _step(events)[0][0] == expected


def test_tokens_are_those_the_model_is_called_with() -> None:
    """All but the last of each text, its halves one after the other, and what has no tokens."""
    batch = _waited(6, 54)
    assert _step([batch, _called(6, 8, tokens=True)])[0] == (6, 48)
    halves = [_called(6, 5, tokens=True), _called(6, 4, tokens=True)]
    assert _step([batch, *halves])[0] == (6, 54)
    parts = [_called(2, 5, tokens=True), _called(2, 4, tokens=True)]
    assert _step([batch, *parts])[0] == (4, 18), "the rest is left out"
    assert _step([batch, _called(9, 6, tokens=True)])[0] == (6, 54), "length first"
    assert _step([batch, _called(6, 9, 3)])[0] == (6, 54)


def test_samples_within_vmap_are_all_that_are_mapped_over() -> None:
    """Each sample is a call of its own, with or without a dimension of batches."""

    def mapped(batch: MicroBatch) -> None:
        batch.called(MODEL, ((4,), 4 * 64, None), trains=True)

    assert _step([_waited(64), mapped])[0][0] == 64


def test_a_batch_that_the_script_cuts_into_pieces_counts_once() -> None:
    """Each piece, a micro-batch, is as large as the model was called with."""
    piece = [_called(4, 3)]
    assert _step([_waited(10), *piece], piece, [_called(2, 3)]) == ((10, None), [4, 4, 2])
    assert _step([_waited(10), *piece], piece) == ((8, None), [4, 4]), "the rest is left out"


def test_samples_of_passes_that_were_thrown_away_are_not_the_steps() -> None:
    """Unless the script had put their gradients aside, or nothing is known of the others."""
    sizes = StepSamples()
    for samples, told in ((32, 32), (8, 8)):
        batch = MicroBatch(0, 0, [])
        _called(samples, 3)(batch)
        sizes.batch_ended(batch)
        assert sizes.told() == (told, None)
        if samples == 32:
            sizes.drop()
            assert sizes.told() == (32, None)
    sizes.keep()
    assert sizes.told() == (40, None)
