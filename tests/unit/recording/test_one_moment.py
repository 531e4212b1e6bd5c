"""Reading at a moment at which other threads stand where that is safe."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from probing.safety.one_moment import Standing, read_when
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


def _waiting(
    stands: threading.Event, goes_on: threading.Event, has_gone_on: threading.Event
) -> None:
    stands.set()
    while not goes_on.wait(DEADLINE_S):
        pass
    has_gone_on.set()
    threading.Event().wait(0.0)


def _is_waiting(standing: Standing) -> bool:
    return any(frame.f_code is _waiting.__code__ for frame in standing.stack)


def test_nothing_is_read_once_a_thread_has_gone_on_since_it_was_looked_at() -> None:
    """What was seen of it does not hold good: all is looked at again."""
    (stands, goes_on, has_gone_on), seen = (threading.Event() for _ in range(3)), list[bool]()
    thread = threading.Thread(target=_waiting, args=(stands, goes_on, has_gone_on))
    thread.start()
    assert stands.wait(DEADLINE_S)

    def is_safe(standing: Sequence[Standing]) -> bool:
        seen.append(any(_is_waiting(one) for one in standing))
        goes_on.set()
        thread.join(DEADLINE_S)
        return True

    assert read_when(is_safe, lambda: iter((1, 2)), 0.0) == [1, 2]
    assert has_gone_on.is_set()
    assert seen[:2] == [True, False]
    assert not any(seen[2:])  # where others of this process have gone on, too


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
