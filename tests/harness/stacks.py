"""Stacks as a test wants them."""

from __future__ import annotations

from collections.abc import Callable

from probing.messages.about.stacks import Backtrace

from .targets import wait_until


def taken_by(source: str, take: Callable[[], Backtrace]) -> Backtrace:
    """A backtrace from that source: who is slow to answer is looked at from outside."""
    found: list[Backtrace] = []

    def is_there() -> bool:
        found.append(take())
        return found[-1].source == source

    wait_until(is_there, f"stacks by {source}")
    return found[-1]
