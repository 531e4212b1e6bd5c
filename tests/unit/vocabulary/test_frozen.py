"""Dataclasses that are declared cheaply behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from probing.messages.frozen import dataclass

pytestmark = pytest.mark.anypython


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A record."""

    name: str
    count: int = 3
    items: list[int] = dataclasses.field(default_factory=list)
    hidden: str = dataclasses.field(default="x", repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """The same record."""

    name: str
    count: int = 3
    items: list[int] = dataclasses.field(default_factory=list)
    hidden: str = dataclasses.field(default="x", repr=False)


@dataclass(slots=True)
class Changing:
    """A record that may be changed, and takes its members by their places, too."""

    first: int
    second: int = 2

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.first < 0:
            raise ValueError("negative")


def test_records_are_made_shown_compared_and_copied_alike() -> None:
    """Both decorators give a class of the same behaviour."""
    ours, theirs = Ours(name="a", items=[1]), Theirs(name="a", items=[1])
    assert repr(ours).replace("Ours", "Theirs") == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert dataclasses.replace(ours, count=4) == Ours(name="a", count=4, items=[1]) != ours
    assert pickle.loads(pickle.dumps(ours)) == copy.deepcopy(ours) == ours
    assert Ours(name="a").items is not Ours(name="a").items
    assert hash(Changing.__hash__) == hash(None)
    assert not hasattr(ours, "__dict__")


@pytest.mark.parametrize("members", [{}, {"name": "a", "other": 1}])
def test_what_does_not_fit_is_refused_alike(members: dict[str, Any]) -> None:
    """A member that is missing or unknown is a TypeError of both, as is one by its place."""
    for cls in (Ours, Theirs):
        with pytest.raises(TypeError):
            cls(**members)
        with pytest.raises(TypeError):
            cls("a")  # type: ignore[call-arg]


def test_a_frozen_record_stays_as_it_is_and_another_does_not() -> None:
    """Frozen members can neither be set nor taken away; places, names and checks are heard."""
    ours = Ours(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        ours.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del ours.name
    changing = Changing(1)
    changing.second = 5
    assert changing == Changing(1, second=5)
    with pytest.raises(ValueError, match="negative"):
        Changing(-1)
    with pytest.raises(TypeError):
        Changing(1, first=1)  # type: ignore[misc]
