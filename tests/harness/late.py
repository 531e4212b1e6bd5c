"""Libraries that a module of tests needs, imported by the first test that uses one.

Each of the workers collects all modules, and would pay for what one of them needs.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


class Late:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_mock")):  # pytest asks whatever it finds for these
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


def late(name: str, *, reason: str) -> Any:
    """Have a module at its first use; where it is not installed, skip the tests of who asks."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(reason, allow_module_level=True)
    return Late(name)
