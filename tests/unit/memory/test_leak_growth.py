"""What has grown is added up by module, type and device, and told by phase."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.sources.leaks import rows
from probing.agent.sources.leaks.comers import Comers, stayed_descriptors
from probing.diagnosis.leaks.growth import OUTSIDE, PARTS, grouped, phase_changes
from probing.diagnosis.leaks.mistakes import findings_of
from tests.unit.memory.leak_samples import (
    FIRST,
    GROWTH_ROWS,
    STEPS,
    leak_row,
    phase_rows,
    step_rows,
)

pytestmark = pytest.mark.anypython

LAST = FIRST + STEPS


@pytest.mark.parametrize("by", PARTS)
def test_groups_add_up_to_all_growth(by: str) -> None:
    """However it is added up, the sum is what all tensors have grown by, the largest part first."""
    groups = grouped(GROWTH_ROWS, by)
    growths = [group.last_bytes - group.first_bytes for group in groups]
    assert sum(growths) == 23 * 4096
    assert sum(group.tensors for group in groups) == 23
    assert growths == sorted(growths, reverse=True)


def test_a_module_is_one_group_and_none_is_one_too() -> None:
    """All categories of a module are one, and what no module owns is named as such."""
    groups = {group.name: group for group in grouped(GROWTH_ROWS, "module")}
    assert set(groups) == {"blocks.0.mlp", "blocks.1.mlp", OUTSIDE}
    assert (groups["blocks.0.mlp"].first_bytes, groups["blocks.0.mlp"].tensors) == (4096, 16)
    assert groups[OUTSIDE].tensors == -1


def test_phases_add_up_to_what_is_kept() -> None:
    """The phases of whole steps sum to the growth per step; a healthy training sums to nothing."""
    kept = phase_changes(phase_rows(kept=64), FIRST + 1, LAST)
    assert [change.bytes_per_step for change in kept] == [0, 800, -636, -100]
    assert {change.figure for change in kept} == {"allocated"}
    healthy = phase_changes(phase_rows(kept=0), FIRST + 1, LAST)
    assert sum(change.bytes_per_step for change in healthy) == 0


def test_phases_of_steps_that_are_not_whole_on_record_are_not_told() -> None:
    """Where the end of a step is missing, no change is made up."""
    rows = [row for row in phase_rows(kept=64) if row["step"] != FIRST + 3]
    assert phase_changes(rows, FIRST + 1, LAST) == ()


@pytest.mark.parametrize(("oldest", "kept"), [(lambda step: step - 5, None), (lambda _: FIRST, 8)])
def test_a_steady_number_of_descriptors_is_no_leak(oldest: Any, kept: int | None) -> None:
    """Batches of a window are descriptors that came in the watched steps, and none more each."""
    comers, counts = Comers(), []
    for step in range(FIRST, LAST + 1):
        there = [(number, f"/dev/shm/{number}") for number in range(oldest(step), step + 1)]
        comers.note(there, step)
        process = SimpleNamespace(descriptors=len(there), worker_bytes=None)
        counts.append(SimpleNamespace(step=step, hooks=0, newest_hook=None, process=process))
    other = SimpleNamespace(stayed=(stayed_descriptors(comers),), workers=None)
    watch: Any = SimpleNamespace(counts=counts, other=other, collections=(), collection_holders=())
    found = [row for each in rows._growth_beside(watch) if (row := rows._grown(each)) is not None]
    assert [row["kept"] for row in found] == ([] if kept is None else [kept])


@pytest.mark.parametrize(
    ("category", "tensors", "weights", "mistake"),
    [
        ("optimizer_state", 24, 12, "first_gradients"),
        ("gradients", 12, 12, "first_gradients"),
        ("optimizer_state", 120, 12, "optimizer"),
        ("gradients", 13, 12, "modules"),
        ("optimizer_state", 24, 13, "optimizer"),
    ],
)
def test_what_a_first_gradient_brings_is_no_leak(
    category: str, tensors: int, weights: int, mistake: str
) -> None:
    """As experts are met, while there are as many parameters; an optimizer made anew is one."""
    steps = step_rows()
    steps[-2]["tensors"] = weights
    steps += [step | {"category": category, "tensors": tensors} for step in steps[-1:]]
    (found,) = findings_of([leak_row(category=category)], steps)
    assert (found.mistake, found.is_leak) == (mistake, mistake != "first_gradients")
