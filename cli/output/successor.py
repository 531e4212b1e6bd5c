"""Servers that a command becomes."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ...safety.off_switch import without_agent
from . import terminal


def become(module: str, *words: str, **variables: str) -> NoReturn:
    """Have a module's program, without an agent, take the place of this process.

    Args:
        variables: Of the environment, beside those of this process.
    """
    terminal.go_live()
    terminal.flush()
    argv = [sys.executable, "-m", module, *words]
    os.execve(sys.executable, argv, without_agent(os.environ) | variables)  # noqa: S606
