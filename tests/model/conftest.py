"""Trainings of these tests are recorded whole: the rows of models of a few modules are counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.targets import recorded_whole


@pytest.fixture(autouse=True, scope="module")
def _recorded_whole() -> Iterator[None]:
    """Nothing is left out, however little a module does beside what recording it costs."""
    with recorded_whole():
        yield
