"""What ends a command that serves."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from probing.server.command import end_by_signals

pytestmark = pytest.mark.anypython

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Signals are as before afterwards."""
    before = [signal.getsignal(number) for number in NUMBERS]
    yield
    for number, handler in zip(NUMBERS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("nohup", [True, False])
def test_a_server_under_nohup_does_not_end_with_its_terminal(*, nohup: bool) -> None:
    """SIGHUP ends it, unless who started it has had that signal ignored."""
    ended: list[str] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    end_by_signals(lambda: ended.append("it"))
    signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGTERM)
    assert len(ended) == (1 if nohup else 2)
