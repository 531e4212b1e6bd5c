"""Reading at a moment at which other threads stand where that is safe."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from probing.safety.one_moment import Standing, read_when
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


def _waiting(goes_on: threading.Event, has_gone_on: threading.Event) -> None:
    while not goes_on.wait(DEADLINE_S):
        pass
    has_gone_on.set()
    threading.Event().wait(0.0)


def test_nothing_is_read_once_a_thread_has_gone_on_since_it_was_looked_at() -> None:
    """What was seen of it does not hold good: all is looked at again."""
    goes_on, has_gone_on, looks = threading.Event(), threading.Event(), list[int]()
    thread = threading.Thread(target=_waiting, args=(goes_on, has_gone_on))
    thread.start()

    def is_safe(standing: Sequence[Standing]) -> bool:
        looks.append(len(standing))
        goes_on.set()
        thread.join(DEADLINE_S)
        return True

    assert read_when(is_safe, lambda: iter((1, 2)), 0.0) == [1, 2]
    assert has_gone_on.is_set()
    assert looks[0] == looks[1] + 1
    assert len(looks) == 2


def test_nothing_is_read_where_it_is_never_safe() -> None:
    """The iterator is made, and not asked."""
    read = list[int]()
    assert read_when(lambda _: False, lambda: map(read.append, (1,)), 0.0) is None
    assert not read


def test_what_fails_as_it_is_read_is_told() -> None:
    """It leaves nothing behind: the next one is read."""
    with pytest.raises(ZeroDivisionError):
        read_when(lambda _: True, lambda: map(divmod, (1,), (0,)), 0.0)
    assert read_when(lambda _: True, lambda: map(divmod, (1,), (1,)), 0.0) == [(1, 0)]
