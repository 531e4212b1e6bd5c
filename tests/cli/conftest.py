"""The trainings with a fault that the doctor looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.targets import Target


@pytest.fixture
def ailing(program: Callable[..., Target]) -> Iterator[Callable[[str, int], Target]]:
    """Start the training with a fault, and wait for a step; what it leaves in memory is removed."""
    started: list[Target] = []

    def start(way: str, step: int) -> Target:
        target = program("ailing", way)
        started.append(target)
        target.wait_for_step(step)
        return target

    yield start
    for target in started:
        target.reap()
        for path in Path("/dev/shm").glob(f"ailing-{target.pid}-*"):
            path.unlink()
