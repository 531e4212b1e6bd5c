"""How many samples a step was trained by, from the sizes of its micro-batches."""

from __future__ import annotations

import pytest

from probing.agent.sources.steps.rows.step_samples import Count, StepSamples

pytestmark = pytest.mark.anypython


Size = tuple[int | None, int | None, int | None, bool]


def _waited(waited: int | None, called: int | None) -> Size:
    """A micro-batch for which a batch was waited for."""
    return called if waited is None else waited, waited, called, True


def _called(called: int | None) -> Size:
    """One without."""
    return called, None, called, False


def _add(count: Count, size: Size) -> int | None:
    """A micro-batch has ended."""
    own, waited, called, has_wait = size
    return count.add(own, waited, called, has_wait=has_wait)


def _step(count: Count, *sizes: Size) -> tuple[int | None, list[int | None]]:
    """The samples of a step, and of its micro-batches."""
    count.sum = count.dropped = None
    own = [_add(count, size) for size in sizes]
    return count.sum, own


CASES = [
    ([_waited(64, 64), _waited(64, 64)], 128),  # accumulation
    ([_waited(64, 64), _called(64)], 128),  # a second model, or the batch once more
    ([_waited(64, 16), _called(16), _called(16), _called(16)], 64),
    ([_waited(64, 16), _called(16)], 32),  # the rest is left out
    ([_waited(10, 4), _called(4), _called(2)], 10),
    ([_waited(64, 48), _called(48)], 112),  # more than there is: no pieces of it
    ([_waited(64, 128)], 64),  # pairs in one call
    ([_waited(64, 16), _waited(64, 16)], 128),  # called with a part of each, or something else
    ([_waited(None, 16), _called(16)], 32),
    ([_called(None)], None),
]


@pytest.mark.parametrize(("sizes", "expected"), CASES)
def test_a_batch_that_the_script_cuts_into_pieces_counts_once(
    sizes: list[Size], expected: int | None
) -> None:
    """Each piece is as large as the model was called with."""
    assert _step(Count(), *sizes)[0] == expected


def test_once_a_batch_was_cut_the_first_piece_of_the_next_is_known() -> None:
    """Also where each piece is a step."""
    count = Count()
    cut = [_waited(64, 32), _called(32)]
    assert _step(count, *cut) == (64, [64, 32])
    assert _step(count, *cut) == (64, [32, 32])
    assert _step(count, _waited(64, 32)) == (32, [32])
    assert _step(count, _called(32)) == (32, [32])
    assert _step(count, _waited(64, 64)) == (64, [64])


def test_samples_of_passes_that_were_thrown_away_are_not_the_steps() -> None:
    """Unless the script had put their gradients aside, or nothing is known of the others."""
    sizes = StepSamples()
    _add(sizes.samples, _waited(32, 32))
    sizes.drop()
    assert sizes.told() == (32, None)
    _add(sizes.samples, _called(8))
    assert sizes.told() == (8, None)
    sizes.keep()
    assert sizes.told() == (40, None)
