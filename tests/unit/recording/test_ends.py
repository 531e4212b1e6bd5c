"""The first and the last parameter of an optimizer, and which gradients they have."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing.agent.recording.training_thread import Trainers  # noqa: E402
from probing.agent.sources.shared.gradients import NO_GRADIENT, Ends  # noqa: E402
from probing.agent.sources.shared.thread_state import ThreadStates  # noqa: E402
from probing.ring.native import IN_C  # noqa: E402


class _Odd:
    """An optimizer that is not as torch makes them."""

    def __init__(self, **facts: Any) -> None:
        self.__dict__.update(facts)


def _ends(*, in_c: bool) -> Ends:
    recording: Any = SimpleNamespace(threads=ThreadStates(), trainers=Trainers())
    return Ends(recording, in_c=in_c)


def _both() -> tuple[Ends, Ends]:
    if IN_C is None:
        pytest.skip("there is no C part here")
    return _ends(in_c=True), _ends(in_c=False)


def test_c_sees_what_python_sees() -> None:
    """As gradients come, are written to, and go; and as groups are added."""
    in_c, plain = _both()
    first, last, more = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    optimizer = torch.optim.SGD([first, last], 0.1)

    def see() -> list[tuple[int, int]]:
        states = list(in_c.states(optimizer))
        assert states == list(plain.states(optimizer))
        assert in_c.held == plain.held
        return states

    assert see() == [NO_GRADIENT, NO_GRADIENT]
    (first.sum() * 2).backward()
    (number, version), other = see()
    assert (number, version, other) == (id(first.grad), first.grad._version, NO_GRADIENT)
    first.grad.add_(1)
    assert see()[0] == (number, version + 1)
    optimizer.add_param_group({"params": [more]})
    more.sum().backward()
    assert see()[1] == (id(more.grad), more.grad._version)
    assert [held.find() for held in in_c.held] == [first, more]


def test_a_parameter_that_took_the_place_of_another_is_another() -> None:
    """So it is where a script replaces one, and where another optimizer is asked for."""
    ends, _ = _both()
    optimizers = [torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1) for _ in range(2)]
    ends.states(optimizers[0])
    held = ends.held
    ends.states(optimizers[0])
    assert ends.held is held
    optimizers[0].param_groups[0]["params"][0] = torch.nn.Parameter(torch.ones(1))
    ends.states(optimizers[0])
    assert ends.held != held
    assert held[0].find() is None
    held = ends.held
    ends.states(optimizers[1])
    assert ends.held != held


@pytest.mark.parametrize(
    "optimizer",
    [
        None,
        _Odd(),
        _Odd(param_groups=()),
        _Odd(param_groups=[{"params": []}]),
        _Odd(param_groups=({"params": [torch.nn.Parameter(torch.ones(1))]},)),
    ],
)
def test_what_is_not_as_torch_makes_it_is_left_to_python(optimizer: Any) -> None:
    """It is looked at as ever."""
    in_c, plain = _both()
    assert IN_C.ends_of(optimizer) is None
    assert list(in_c.states(optimizer)) == list(plain.states(optimizer))
    assert in_c.held == plain.held


def test_what_a_pass_has_made_is_noted_alike() -> None:
    """Gradients that came, went, stayed or were written to, whatever the states are kept in."""
    states = [NO_GRADIENT, (7, 0), (7, 1), (8, 0)]
    held: list[Any] = ["first", "last"]
    for before in itertools.product(states, repeat=2):
        for now in itertools.product(states, repeat=2):
            for kind, count in itertools.product((list, tuple), range(3)):
                found: list[Any] = []
                for ends in _both():
                    made: list[Any] = ["earlier"]
                    last: list[Any] = []
                    ends.note(held, kind(before[:count]), now, NO_GRADIENT, made, last)
                    found.append((made, last))
                assert found[0] == found[1]
    with pytest.raises(TypeError):
        IN_C.note_ends([], [], [], NO_GRADIENT, (), [])
