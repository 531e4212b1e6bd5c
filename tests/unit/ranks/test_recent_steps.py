"""The newest steps of a process, which are looked at again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing.client.recent_steps import pace_of, steps_in
from probing.ring.format import NULL_FLOAT
from probing.rundir.folders import RunDirectory
from probing.tables import STEPS
from tests.harness.ring_writer import RingWriter

pytestmark = pytest.mark.anypython


def ring_of(steps: range) -> RingWriter:
    """A record of these steps, each of another duration."""
    writer = RingWriter(STEPS, capacity=64)
    for step in steps:
        writer.write(step=step, start_ns=step * 10**9, duration_ns=step * 10**6)
    return writer


@pytest.mark.parametrize("now", [range(30), range(100, 105), range(100, 130)])
def test_what_is_known_is_of_the_same_ring(now: range, tmp_path: Path) -> None:
    """After a detach and an attach, no row of the ring before is taken for one of the new one."""
    folder = RunDirectory(tmp_path / "home").create_folder(4242, 1)
    ring_of(range(20)).save(folder.ring("steps"))
    known = steps_in(folder, 50)
    assert [row["step"] for row in known] == list(reversed(range(20)))
    ring_of(now).save(folder.ring("steps"))
    assert [row["step"] for row in steps_in(folder, 50, known)] == list(reversed(now))
    is_kept = any(row is old for row in steps_in(folder, 50, known) for old in known)
    assert is_kept == (now.start == 0)


@pytest.mark.parametrize(
    ("losses", "first", "told"),
    [((None, None, 7.0, None, 5.0), 2, (7.0, None, 5.0)), ((None, None), None, ())],
)
def test_the_first_loss_has_the_number_of_its_own_step(
    losses: tuple[float | None, ...],
    first: int | None,
    told: tuple[float | None, ...],
    tmp_path: Path,
) -> None:
    """Not that of a step before it, whose loss is not known."""
    folder = RunDirectory(tmp_path / "home").create_folder(4242, 1)
    writer = RingWriter(STEPS, capacity=64)
    for step, loss in enumerate(losses):
        writer.write(
            step=step, start_ns=1, duration_ns=10**6, loss=NULL_FLOAT if loss is None else loss
        )
    writer.save(folder.ring("steps"))
    pace = pace_of(steps_in(folder, 50))
    assert pace is not None
    assert (pace.first_step, pace.losses) == (first, told)
