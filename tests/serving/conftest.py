"""A training of two ranks and a page about it, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.targets import Target
from tests.harness.web import Web, two_ranks, web


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Target]]:
    """Both ranks of a training."""
    with two_ranks(tmp_path_factory.mktemp("target"), job="job") as started:
        yield started


@pytest.fixture(scope="module")
def served(ranks: list[Target], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The command about them, by which code can be run in them."""
    with web(tmp_path_factory.mktemp("web") / "in", ranks[0].home, "--allow-eval") as started:
        yield started
