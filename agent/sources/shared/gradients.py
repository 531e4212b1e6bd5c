"""Reads which gradients parameters have, or lets go of them: decides, for all, whether that can be.

Autograd's engine replaces gradients without the interpreter lock; and where a script lets go of
one, as `zero_grad` does, torch gives that lock away while the parameter still points to what is
being freed. Whoever reads it meanwhile ends the process.

Rules of this file: where one thread trains, that reads its gradients at any moment at which it
makes no pass. Another thread, and any where several train, reads them only at a moment at which all
others stand still, and none of them lets go of a gradient, or is in a pass or an optimizer's step;
else they are not known. So it is with letting go of one.
"""

from __future__ import annotations

import dis
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ....ring.native import IN_C
from ....safety.one_moment import Standing, read_when
from .versions import Held, held_at_ends, version_of, version_told

if TYPE_CHECKING:
    from types import CodeType

    from .recording import Recording

_PATIENCE_S = 0.05
"""How long a training thread waits at a step's end for others that let go of gradients."""
_UNASKED = 100
"""After so many slow steps in which nobody has asked, no more are looked at."""
_GRADIENT = attrgetter("grad")
_LETS_GO = frozenset({dis.opmap["STORE_ATTR"], dis.opmap["DELETE_ATTR"]})


State = tuple[int, int]
"""Which gradient a parameter has, and how often that was written to."""
NO_GRADIENT: State = (0, -1)
_Seen = tuple[tuple[int, ...], tuple[State, ...]]
"""What both are known again by, and the state of each."""


class Gradient(NamedTuple):
    """What is known of the gradient of a leaf.

    Attributes:
        is_there: Whether there is one.
        version: How often it was changed in place; None without one, or where that is not counted.
    """

    is_there: bool
    version: int | None


def gradients_of(
    leaves: Sequence[Any],
    recording: Recording | None,
    *,
    patience_s: float = 0.0,
    is_still: bool = False,
) -> list[Any] | None:
    """The gradients of some leaves, None of one that has none; None where they cannot be read now.

    Args:
        recording: None where nothing else goes on in the process.
        patience_s: How long is waited for a moment at which they can be.
        is_still: Whether all that trains was proven to stand still, if in the midst of a pass.
    """
    if not leaves:
        return []
    return _done_when_safe(lambda: map(_GRADIENT, leaves), recording, patience_s, is_still=is_still)


def let_go_of_gradients(
    leaves: Sequence[Any], recording: Recording | None, *, patience_s: float = 0.0
) -> bool:
    """Have some leaves hold no gradient any more; False where that cannot be now.

    The gradients are held until no leaf points to them: none is freed meanwhile.
    """

    def held_and_gone() -> Iterable[Any]:
        gone = map(setattr, leaves, repeat("grad"), repeat(None))
        return chain(map(_GRADIENT, leaves), filter(None, gone))

    return _done_when_safe(held_and_gone, recording, patience_s, is_still=False) is not None


def _done_when_safe(
    work: Callable[[], Iterable[Any]],
    recording: Recording | None,
    patience_s: float,
    *,
    is_still: bool,
) -> list[Any] | None:
    """What an iterator that is written in C gives, run where it is safe; None where it is not."""
    if recording is None or _trains_alone(recording):
        return list(work())
    at_work = recording.safe_points.at_work

    def is_safe(standing: Sequence[Standing]) -> bool:
        if any(map(_is_letting_go, standing)):
            return False
        return is_still or not (at_work.is_here() or at_work.is_elsewhere())

    with _no_code_of_subclasses():
        return read_when(is_safe, work, patience_s)


def _no_code_of_subclasses() -> AbstractContextManager[Any]:
    """Have torch ask the tensors themselves for what is read of them."""
    torch: Any = sys.modules.get("torch")
    return nullcontext() if torch is None else torch._C.DisableTorchFunction()


def _trains_alone(recording: Recording) -> bool:
    """Whether the calling thread trains, if any does."""
    thread = recording.threads.state
    return not thread.is_agents and recording.trainers.is_alone(thread.native_id)


def _is_letting_go(standing: Standing) -> bool:
    """Whether a thread sets a gradient, or is in what that has set off, as a weak reference's end.

    Nothing else frees one that is asked of a parameter which somebody holds.
    """
    places = [standing.lasti, *(frame.f_lasti for frame in standing.stack[1:])]
    return any(
        _sets_gradient(frame.f_code, at) for frame, at in zip(standing.stack, places, strict=True)
    )


def _sets_gradient(code: CodeType, at: int) -> bool:
    """Whether an instruction may; any attribute's will do in code that knows the name."""
    return "grad" in code.co_names and at >= 0 and code.co_code[at] in _LETS_GO


def known_of(
    leaves: Sequence[Any], recording: Recording, *, patience_s: float, is_still: bool = False
) -> dict[int, Gradient] | None:
    """What is known of the gradients of some leaves, by identity; see `gradients_of`.

    Of what another thread trains, none that is not there is told: it may be between two passes.
    """
    is_sure = is_still or _trains_alone(recording)
    found = gradients_of(leaves, recording, patience_s=patience_s, is_still=is_still)
    if found is None:
        return None
    known = {id(leaf): _told(gradient) for leaf, gradient in zip(leaves, found, strict=True)}
    if is_sure:
        return known
    own = _counted_parameters(recording)
    return {key: one for key, one in known.items() if one.is_there or key in own}


def _counted_parameters(recording: Recording) -> set[int]:
    """The identities of what the optimizers have whose steps are counted."""
    groups = [list(one.param_groups) for one in recording.objects.counted_optimizers()]
    return {id(one) for group in chain.from_iterable(groups) for one in list(group["params"])}


def _told(gradient: Any) -> Gradient:
    version = None if gradient is None else version_told(gradient)
    return Gradient(gradient is not None, version)


def any_gradient(leaves: Iterable[Any], recording: Recording) -> bool:
    """Whether any of some leaves is known to have one."""
    return any(True for _ in gradients_there(leaves, recording))


def gradients_there(leaves: Iterable[Any], recording: Recording) -> Iterator[Any]:
    """The gradients that some leaves have, as far as they are known."""
    found = gradients_of(list(leaves), recording) or ()
    return (gradient for gradient in found if gradient is not None)


def note_ends(  # noqa: PLR0917 - as in C
    held: Iterable[Held],
    before: Iterable[State],
    states: Iterable[State],
    no_gradient: State,
    made: list[Held],
    last: list[tuple[Held, int]],
) -> None:
    """Note what a pass has made of gradients.

    Args:
        held: Some parameters.
        before: Their states as it began.
        states: The same now.
        made: Those are added to it whose gradients it has made, or added to.
        last: Those are added to it that have any, with the identity of that.
    """
    for one, old, state in zip(held, before, states, strict=False):
        if state != no_gradient:
            if state != old:
                made.append(one)
            last.append((one, state[0]))


def _cannot_tell(_: object) -> None:
    """Stands for the C part where there is none."""


class Ends:
    """The first and the last parameter of an optimizer: which gradients they have.

    The optimizer mostly is that of the last time. Where all is as torch makes it, and no other
    thread trains, the C part looks; what is meant is said here. No parameter is kept.

    Attributes:
        held: How the parameters are known: the same list for as long as they are the same.
        note: `note_ends`, or what does the same in C.
    """

    def __init__(self, recording: Recording, *, in_c: bool = True) -> None:
        """Begin without any.

        Args:
            in_c: Whether the C part looks, where it was built.
        """
        self._recording = recording
        is_in_c = in_c and IN_C is not None
        self._look: Callable[[Any], _Seen | None] = IN_C.ends_of if is_in_c else _cannot_tell
        self.note = IN_C.note_ends if is_in_c else note_ends
        self.held: list[Held] = []
        self._holder: weakref.ref[Any] | None = None
        self._key: tuple[int, ...] = ()

    def states(self, optimizer: Any) -> Sequence[State]:
        """Their states, in the order of `held`; none where that cannot be known now.

        Args:
            optimizer: None where there is none.
        """
        seen = self._look(optimizer) if _trains_alone(self._recording) else None
        if seen is None:
            return self._plain_states(optimizer)
        key, states = seen
        holder = self._holder
        if key != self._key or holder is None or holder() is not optimizer:
            self.held = [held for held, _ in held_at_ends(optimizer)]
            self._holder, self._key = weakref.ref(optimizer), key
        return states

    def states_again(self) -> Sequence[State]:
        """The same of the optimizer that was asked for last."""
        return self.states(None if self._holder is None else self._holder())

    def _plain_states(self, optimizer: Any) -> Sequence[State]:
        """The same of whatever optimizer, and where others train, too."""
        found = held_at_ends(optimizer)
        self.held, self._holder = [held for held, _ in found], None
        return states_of([parameter for _, parameter in found], self._recording)


def states_of(parameters: Sequence[Any], recording: Recording) -> list[State]:
    """The states of some parameters; none where they cannot be known now."""
    found = gradients_of(parameters, recording) or ()
    return [NO_GRADIENT if one is None else (id(one), version_of(one)) for one in found]


class GradientLook:
    """A `StepEndJob`: sees which gradients there are as a step ends.

    Args:
        leaves: The parameters.

    Attributes:
        found: By identity; None while they could not be read.
        is_over: Set when there is nothing more to come.
    """

    def __init__(self, recording: Recording, leaves: Sequence[Any]) -> None:
        self._recording = recording
        self._leaves = leaves
        self.found: dict[int, Gradient] | None = None
        self.is_over = threading.Event()

    def step_ended(self) -> bool:
        """See `StepEndJob`; where they cannot be read the next step's end may do."""
        if self.is_over.is_set():
            return True
        self.found = known_of(self._leaves, self._recording, patience_s=_PATIENCE_S)
        if self.found is None:
            return False
        self.is_over.set()
        return True

    def failed(self, _reason: str) -> None:
        """See `StepEndJob`."""
        self.is_over.set()


class SlowSteps:
    """A `StepEndJob`: sees which gradients there are as each slow step ends, for who asks later.

    It holds nothing of the training, and ends with the first step that is not slow, or once nobody
    has asked for long.

    Args:
        leaves: Returns the parameters.
        is_slow: Whether the step that has just ended was.
    """

    def __init__(
        self,
        recording: Recording,
        leaves: Callable[[], Sequence[Any]],
        is_slow: Callable[[], bool],
    ) -> None:
        self._recording = recording
        self._leaves, self._is_slow = leaves, is_slow
        self._found: dict[int, Gradient] | None = None
        self._step = self._asked = recording.step

    def last(self) -> dict[int, Gradient] | None:
        """By identity, as the last step has ended; None where that is not known."""
        self._asked = self._recording.step
        return self._found if self._step == self._asked else None

    def step_ended(self) -> bool:
        """See `StepEndJob`."""
        recording = self._recording
        is_asked_for = recording.step - self._asked <= _UNASKED
        if recording.looks.slow_steps is not self or not (self._is_slow() and is_asked_for):
            self._leave()
            return True
        self._step = recording.step
        self._found = known_of(self._leaves(), recording, patience_s=_PATIENCE_S)
        return False

    def failed(self, _reason: str) -> None:
        """See `StepEndJob`."""
        self._leave()

    def _leave(self) -> None:
        """Look no more."""
        if self._recording.looks.slow_steps is self:
            self._recording.looks.slow_steps = None
