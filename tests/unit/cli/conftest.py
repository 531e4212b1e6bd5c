"""What tests of the command line have in common."""

from __future__ import annotations

import pytest

from probing.cli.output import terminal


@pytest.fixture(autouse=True)
def as_begun() -> None:
    """A test prints as a command does that has just begun, whatever was asked of one before."""
    terminal.begin()
