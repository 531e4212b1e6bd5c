"""Objects of some classes that are alive in the process, by way of the garbage collector.

Rules of this file: compares classes and runs no code of any object: `isinstance` would ask an
object for its `__class__`, and lazy ones answer with an import or a warning. What is young is asked
for in lists of its own, since objects move to older generations and never back. A list of all
objects keeps every tensor alive that the training lets go of meanwhile, and has a thread fail that
is making a tuple of what comes one by one (`SystemError`): there is none but within one call of C
code, during which nothing else runs: no collection, which would run what is in `gc.callbacks`, and
no hook that audits the question for another generation. Whatever tensor was come by through the
collector or a weak reference is made `whole` before anything is asked of it.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, compress, starmap
from operator import not_
from typing import Any

from ....safety.other_stacks import undisturbed

MRO: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_GENERATIONS = (0, 1, 2)
_OLD = _GENERATIONS[-1:]


class _Wanted(dict[type, bool]):
    """Whether objects of a class are wanted; asks about each class once."""

    def __init__(self, classes: Sequence[type]) -> None:
        super().__init__()
        self._classes = frozenset(classes)

    def __missing__(self, kind: type) -> bool:
        self[kind] = is_wanted = not self._classes.isdisjoint(MRO(kind))
        return is_wanted


class Survey:
    """The old objects of some classes, looked for beforehand: they are most of all there are.

    It runs beside the training, and keeps weak references; none to a parameter of a module, which
    torch would then refuse to swap for another one. What has grown old since is not in it, so it
    holds good only until the collector makes anything old.

    Args:
        classes: First that of tensors, among which are the parameters.
    """

    def __init__(self, classes: Sequence[type]) -> None:
        self._collections = _old_collections()
        kinds = {kind for kind in kinds_of(_OLD) if kind.__weakrefoffset__}
        tensors = {kind for kind in kinds if classes[0] in MRO(kind)}
        others = _Wanted(classes[1:])
        holders = _references({kind for kind in kinds if others[kind]}, ())
        registered = {
            id(tensor)
            for ref in holders
            if (own := getattr(ref(), "__dict__", None)) and type(own.get("_parameters")) is dict
            for tensor in list(own["_parameters"].values())
        }
        self._holders, self._tensors = holders, _references(tensors, registered)

    def is_good(self) -> bool:
        """Whether nothing has grown old since."""
        return self._collections == _old_collections()

    def alive(self) -> tuple[list[Any], list[Any]]:
        """Those that still live: first the tensors."""
        return _alive(self._tensors), _alive(self._holders)


def _alive(references: list[weakref.ref[Any]]) -> list[Any]:
    return [thing for ref in references if (thing := ref()) is not None]


def kinds_of(generations: Sequence[int]) -> set[type]:
    """The classes of all objects."""
    found = set[type]()
    kinds = map(type, chain.from_iterable(map(gc.get_objects, generations)))
    undisturbed(filter(None, map(found.update, (kinds,))))
    return found


def objects_of(classes: Collection[type]) -> list[Any]:
    """The objects of some classes or classes derived from them, looked for beside the training."""
    kinds = {kind for kind in kinds_of(_GENERATIONS) if not set(classes).isdisjoint(MRO(kind))}
    return of_generations(_GENERATIONS, kinds)


def of_generations(generations: Sequence[int], kinds: Collection[type]) -> list[Any]:
    """The objects of some classes, each once."""
    parts = [of_kinds(map(gc.get_objects, (number,)), kinds) for number in generations]
    return list({id(thing): thing for part in parts for thing in part}.values())


def of_kinds(parts: Iterable[Iterable[object]], kinds: Collection[type]) -> list[Any]:
    """The things of some classes in all parts.

    Args:
        parts: Written in C; nothing is held yet as the first one is asked for.
    """
    return undisturbed(_of_kinds(parts, kinds))


def _of_kinds(parts: Iterable[Iterable[object]], kinds: Collection[type]) -> Iterator[Any]:
    return _picked(parts, lambda there: map(kinds.__contains__, map(type, there)))


def _picked(
    parts: Iterable[Iterable[object]], selectors: Callable[[list[Any]], Iterable[object]]
) -> Iterator[Any]:
    """Some of the things in all parts, to be read by one call of C code, which holds no other then.

    Args:
        parts: Read as late as that, too.
        selectors: Says of each thing whether it is wanted; iterators written in C, on a list that
            is filled later.
    """
    there: list[Any] = []
    fill, empty = map(there.extend, parts), starmap(there.clear, ((),))
    return chain(filter(None, fill), compress(there, selectors(there)), filter(None, empty))


def _references(kinds: Collection[type], left_out: Collection[int]) -> list[weakref.ref[Any]]:
    """Weak references to the old objects of some classes, but for some of them by identity."""
    found = dict[int, weakref.ref[Any]]()
    for number in _OLD:  # a hook that audits the next one runs Python: nothing is held by then
        old = _of_kinds(map(gc.get_objects, (number,)), kinds)
        own = old
        if left_out:  # where a program audits by Python, it is told of each `id` from 3.12 on
            own = _picked(
                (old,), lambda every: map(not_, map(left_out.__contains__, map(id, every)))
            )
        found.update((id(ref), ref) for ref in undisturbed(map(weakref.ref, own)))
    return list(found.values())


def living(classes: Sequence[type], survey: Survey | None = None) -> list[list[Any]]:
    """The objects of each class or a class derived from it, each once, about the oldest first.

    All of it is done in C: half a million objects take some tens of milliseconds. Other threads run
    meanwhile: see above.

    Args:
        survey: What is known of the old ones. Parameters of modules are missing then.
    """
    wanted, parts, collections = _Wanted(classes), list[list[Any]](), _collections()
    tensors, others = survey.alive() if survey is not None and survey.is_good() else ([], [])
    for generation in _GENERATIONS:
        if generation in _OLD and survey is not None and survey.is_good():
            break  # else what was young is old by now, and the survey has not seen it
        kinds = {kind for kind in kinds_of((generation,)) if wanted[kind]}
        parts.append(of_kinds(map(gc.get_objects, (generation,)), kinds))
    else:
        parts.append([*tensors, *others])
        tensors, others = [], []
    there = list(chain(others, *reversed(parts)))
    if collections != _collections():  # some are in two lists, as they have grown old meanwhile
        there = list(dict(zip(map(id, there), there, strict=True)).values())
    kinds = set(map(type, there))
    return [
        whole([*known, *_among(there, {k for k in kinds if cls in MRO(k)})])
        for cls, known in zip(classes, (tensors, *([[]] * len(classes))), strict=False)
    ]


def _among(things: list[Any], kinds: Collection[type]) -> list[Any]:
    """Those of some classes."""
    return list(compress(things, map(kinds.__contains__, map(type, things))))


def whole(things: list[Any]) -> list[Any]:
    """Have the tensors among some things own their memory, as those do that a variable holds.

    Before torch 2.10 one that only C++ refers to does not: who comes by it in Python holds its
    shell, and when C++ lets go of it, on a thread without the interpreter lock, what is in it is
    freed.
    """
    own = _made_own() if "torch" in sys.modules else None
    if own is not None:
        tensor, make_own = own
        for thing in things:
            if tensor in MRO(type(thing)):
                make_own(thing)
    return things


@functools.cache
def _made_own() -> tuple[type, Callable[[Any], object]] | None:
    """The class of tensors, and what makes one own its memory; None where each does."""
    torch: Any = sys.modules["torch"]
    if torch.__version__ >= (2, 10):
        return None
    return torch.Tensor, torch.Tensor._fix_weakref


def _old_collections() -> list[int]:
    """How often anything may have grown old; before Python 3.14 that takes an older generation."""
    return _collections()[0 if sys.version_info >= (3, 14) else 1 :]


def _collections() -> list[int]:
    """How often each generation was collected."""
    return [stats["collections"] for stats in gc.get_stats()]
