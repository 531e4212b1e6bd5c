"""How a line that is being typed can go on: told without running anything of the job."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.eval.completion import complete

pytestmark = pytest.mark.anypython


class Noisy:
    """Fails the test that asks it anything."""

    def __bool__(self) -> bool:
        raise AssertionError("the job's code was run")

    def __iter__(self) -> Any:
        raise AssertionError("the job's code was run")


def refuse(_: object) -> None:
    """Fail the test as well."""
    raise AssertionError("the job's code was run")


POSING = type("Posing", (), {"__class__": property(refuse)})
PROXY = type("Proxy", (), {"__dict__": property(refuse), "member": 1})
THINGS: dict[str, object] = {
    "pool": SimpleNamespace(_buffers=Noisy(), member=1),
    "posing": POSING(),
    "proxy": PROXY(),
    "kind": int,
    "module": SimpleNamespace(_modules=OrderedDict(member=1), _parameters={"mesh": 2}),
}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pool.mem", ("member",)),
        ("posing.mem", ()),
        ("proxy.mem", ("member",)),
        ("module.me", ("member", "mesh")),
        ("module.member.im", ("imag",)),
        ("kind.numer", ("numerator",)),
    ],
)
def test_a_line_is_completed_without_the_jobs_code(text: str, words: tuple[str, ...]) -> None:
    """Whatever its objects keep where torch modules keep their parts, and say of themselves."""
    training: Any = SimpleNamespace(thread_id=int, names=dict)
    assert complete(text, training, THINGS).words == words
