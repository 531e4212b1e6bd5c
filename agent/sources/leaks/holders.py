"""Who refers to a tensor, by names that a person knows.

Rules of this file: runs in the training thread, a small step at a time, each of them one look of
the garbage collector through the process. Walks from a tensor to what refers to it, breadth first,
up to a variable, an attribute or a closure; runs no code of any object; what is ours is passed
over. Nothing it has met stays referenced once it is closed.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..storage.living import living
from .graph_holders import graph_of
from .named_places import Link, Places, is_ours

if TYPE_CHECKING:
    from ..steps.recording import Recording

_DEEPEST = 9
_MOST_LOOKS = 24
_MOST_REFERRERS = 200
_UNNAMED = {"native", "cycle", "unknown"}


class Sought(Protocol):
    """Storages of one kind, of which one is looked for.

    Attributes:
        tensor_ids: Of those that a Python object stands for, in the order of their births.
        addresses: Where they are.
    """

    @property
    def tensor_ids(self) -> list[int]:
        """See above."""

    @property
    def addresses(self) -> set[tuple[str, int]]:
        """See above."""


class Holder(NamedTuple):
    """From where something is referred to.

    Attributes:
        kind: One of `HOLDERS`.
        path: The reference, such as `trainer.losses[...]`.
        place: Whose it is.
        container: The innermost collection on the way, and its length.
        bound: The most that it can hold.
        file: The source file of the holder.
        line_of: The line where it begins; None for a whole file.
        variable: The name to which a line of that file adds.
        has_graph: Whether the tensor has an autograd graph; None where no object was found.
    """

    kind: str
    path: str | None = None
    place: str | None = None
    container: str | None = None
    bound: int | None = None
    file: str | None = None
    line_of: int | None = None
    variable: str | None = None
    has_graph: bool | None = None


class _Node:
    """Something on the way from a tensor outwards."""

    __slots__ = ("depth", "inner", "link", "thing")

    def __init__(self, thing: Any, inner: _Node | None, link: Link) -> None:
        self.thing, self.inner, self.link = thing, inner, link
        self.depth: int = 0 if inner is None else inner.depth + 1


class _Walk:
    """The search for the holder of one tensor."""

    def __init__(self, tensor: Any) -> None:
        self.has_graph = tensor.grad_fn is not None
        self.queue = deque([_Node(tensor, None, Link())])
        self.seen = {id(tensor)}
        self.looks = 0
        self.is_cut = self.has_cycle = False
        self.holder: Holder | None = None

    def forget_the_gone(self) -> None:
        """Keep the identities only of what cannot have gone: what is on the way is held."""
        self.seen.clear()
        for waiting in self.queue:
            node: _Node | None = waiting
            while node is not None and id(node.thing) not in self.seen:
                self.seen.add(id(node.thing))
                node = node.inner


class HolderSearch:
    """Looks for the holders of storages.

    Attributes:
        is_done: Whether there is nothing more to look for.
    """

    def __init__(self, recording: Recording, kept: Sequence[Sought]) -> None:
        self.is_done = not kept
        self._recording = recording
        self._kept = kept
        self._walks: list[_Walk | None] = []
        self._of_graph: list[int | None] = []
        self._places: Places | None = None
        self._is_begun = False

    def advance(self) -> None:
        """Do the next piece of the work."""
        if not self._is_begun:
            self._begin()
            return
        walk = next((w for w in self._walks if w is not None and w.holder is None), None)
        if walk is None:
            self.is_done = True
            return
        if self._places is None:
            self._places = Places(self._recording)
        self._advance(walk, self._places)

    def renew(self) -> None:
        """Time has passed: names are to be read anew, and what was met may have gone.

        Where it was, something else may be by now, which has not been looked at.
        """
        self._places = None
        for walk in self._walks:
            if walk is not None:
                walk.forget_the_gone()

    def holders(self) -> list[Holder]:
        """One for each that was asked for."""
        found = [self._holder_for(number) for number in range(len(self._walks))]
        return found or [Holder("unknown") for _ in self._kept]

    def _holder_for(self, number: int) -> Holder:
        """The holder of one: where none has a name, that of the graph it is in, or of its graph."""
        walk, graph = self._walks[number], self._of_graph[number]
        own = Holder("native") if walk is None else walk.holder or Holder("unknown")
        best, met = own, {number}
        while best.kind in _UNNAMED and graph is not None and graph not in met:
            met.add(graph)
            of = self._walks[graph]
            if of is not None and of.holder is not None:
                best = of.holder
            graph = self._of_graph[graph]
        return own if best is own else best._replace(kind="graph", has_graph=own.has_graph)

    def close(self) -> None:
        """Let go of everything."""
        for walk in self._walks:
            if walk is not None:
                walk.queue.clear()
        self._places = None
        self.is_done = True

    def _begin(self) -> None:
        """Take one tensor of each kind: not the newest, which a variable may hold besides."""
        self._is_begun = True
        wanted = {
            number: ids[(len(ids) - 1) // 2]
            for number, kept in enumerate(self._kept)
            if (ids := kept.tensor_ids)
        }
        asked = set(wanted.values())
        tensors = {id(t): t for t in living((_tensor_class(),))[0] if id(t) in asked}
        chosen = [tensors.get(wanted.get(number, 0)) for number in range(len(self._kept))]
        self._walks = [None if tensor is None else _Walk(tensor) for tensor in chosen]
        self._of_graph = graph_of(chosen, [kept.addresses for kept in self._kept])

    def _advance(self, walk: _Walk, places: Places) -> None:
        """One look at what refers to one object."""
        if not walk.queue or walk.looks >= _MOST_LOOKS:
            self._finish(walk, None)
            return
        node = walk.queue.popleft()
        walk.looks += 1
        place = places.local(node.thing)
        referrers = gc.get_referrers(node.thing)
        walk.is_cut |= len(referrers) > _MOST_REFERRERS
        found: _Node | None = None if place is None else _Node(None, node, place)
        for thing in referrers[:_MOST_REFERRERS]:
            if type(thing) is _Node or self._is_own(thing, walk) or is_ours(thing):
                continue
            if id(thing) in walk.seen:
                walk.has_cycle = True
                continue
            link = places.link(thing, node.thing, node.link)
            if link is None:
                continue
            outer = _Node(thing, node, link)
            if link.kind is not None:
                found = outer
                break
            walk.seen.add(id(thing))
            if outer.depth < _DEEPEST:
                walk.queue.append(outer)
            else:
                walk.is_cut = True
        del referrers
        if found is not None:
            self._finish(walk, found)

    def _is_own(self, thing: Any, walk: _Walk) -> bool:
        """Whether an object is of the search itself."""
        own = (self._walks, walk.queue, walk.__dict__, self.__dict__)
        return any(thing is each for each in own)

    def _finish(self, walk: _Walk, node: _Node | None) -> None:
        """Note what was found, and let go of what was met."""
        walk.queue.clear()
        if node is not None:
            walk.holder = _holder_of(node, has_graph=walk.has_graph)
        elif walk.is_cut or walk.looks >= _MOST_LOOKS:
            walk.holder = Holder("unknown", has_graph=walk.has_graph)
        else:
            kind = "cycle" if walk.has_cycle else "native"
            walk.holder = Holder(kind, has_graph=walk.has_graph)


def _holder_of(outermost: _Node, *, has_graph: bool) -> Holder:
    """What the way from the outermost object to the tensor is called."""
    last = outermost.link
    path, container, bound, variable = "", None, None, None
    is_traceback = False
    file, line_of = last.file, last.line_of
    node: _Node | None = outermost
    is_named = False
    while node is not None:
        link = node.link
        if not is_named:
            path += link.text
            container = link.container or container
            bound = link.bound if link.container else bound
        if link.file is not None and link.variable is not None:
            file, line_of = link.file, link.line_of
        variable = link.variable or variable
        is_traceback |= link.is_traceback
        is_named = link.names_next
        node = node.inner
    return Holder(
        kind="traceback" if is_traceback else str(last.kind),
        path=path.lstrip("."),
        place=last.place,
        container=container,
        bound=bound,
        file=file,
        line_of=line_of,
        variable=variable,
        has_graph=has_graph,
    )


def _tensor_class() -> type:
    cls: type = sys.modules["torch"].Tensor
    return cls
