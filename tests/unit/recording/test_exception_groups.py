"""What is written down about a group of exceptions, as an `asyncio.TaskGroup` raises one."""

from __future__ import annotations

import builtins
import threading
from typing import Any

import pytest

from probing.agent.crash.exception_record import describe
from probing.agent.crash.own_frames import parts_of

pytestmark = pytest.mark.anypython


class BaseExceptionGroup(Exception):
    """What packages have before Python 3.11."""

    def __init__(self, message: str, exceptions: list[BaseException]) -> None:
        super().__init__(message)
        self.exceptions = tuple(exceptions)


KINDS = [BaseExceptionGroup, *filter(None, [getattr(builtins, "ExceptionGroup", None)])]


def rollout() -> None:
    """Fails for a reason."""
    try:
        dict[str, int]()["no such key"]
    except KeyError as error:
        raise ValueError("no such layer") from error


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_a_group_are_told_with_where_the_first_was_raised(kind: Any) -> None:
    """The group itself says no more than how many there are, and where they were gathered."""
    try:
        rollout()
    except ValueError as first:
        group = kind("inner", [first, OSError("gone")])
    with pytest.raises(kind) as caught:
        raise kind("unhandled errors", [group])
    error = caught.value
    assert parts_of(error) == (group,)
    record = describe("exception", error, error.__traceback__, threading.current_thread())
    told = [(link["relation"], link["type"].rpartition(".")[2]) for link in record["chain"]]
    assert told[1:] == [("part", "ValueError"), ("cause", "KeyError"), ("part", "OSError")]
    assert told[0] == ("part", kind.__name__)
    frames = [frame["func"] for frame in record["threads"][0]["frames"]]
    assert frames[0] == "rollout"
    assert frames[-1].startswith("test_the_parts")


def test_another_exception_with_such_a_name_has_no_parts() -> None:
    """Some errors of libraries list what went wrong."""
    error: Any = ValueError("several")
    error.exceptions = (OSError(),)
    assert parts_of(error) == ()
