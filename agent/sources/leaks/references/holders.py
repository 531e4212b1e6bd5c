"""Who refers to a tensor, by names that a person knows.

Rules of this file: runs in the training thread, a small step at a time, each of them one look of
the garbage collector through the process. Walks from a tensor to what refers to it, breadth first,
up to a variable, an attribute or a closure; runs no code of any object; what is ours is passed
over. Nothing it has met stays referenced once it is closed.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...shared.recording import Recording
from ...torch_types import Tensor
from .bounds import bound_on_way
from .named_places import Link, Places, is_ours
from .tensors_over import Place, graph_keepers, tensors_over

_DEEPEST = 9
_MOST_LOOKS = 24
_MOST_REFERRERS = 200
_GRAPHS_S = 0.3
"""How long what refers to the ends of graphs is looked for, all of it in one go."""
_UNNAMED = {"native", "cycle", "unknown"}


class Sought(NamedTuple):
    """Storages of one kind, of which one is looked for.

    Attributes:
        places: Where they are, in the order of their births.
        tensor_id: The one tensor over it that is meant; None where each of them is.
        thing: What is looked for instead of a tensor.
    """

    places: Sequence[Place] = ()
    tensor_id: int | None = None
    thing: Any = None


class Holder(NamedTuple):
    """From where something is referred to.

    Attributes:
        kind: One of `HOLDERS`.
        path: The reference, such as `trainer.losses[...]`.
        place: Whose it is.
        container: The innermost collection on the way, and its length.
        bound: The most that it, or a collection around it of which it is an item, can hold.
        file: The source file of the holder.
        line_of: The line where it begins; None for a whole file.
        names: Those to which a line of that file may add, the innermost first.
        has_graph: Whether the tensor has an autograd graph; None where no object was found.
    """

    kind: str
    path: str | None = None
    place: str | None = None
    container: str | None = None
    bound: int | None = None
    file: str | None = None
    line_of: int | None = None
    names: tuple[str, ...] = ()
    has_graph: bool | None = None


class _Node:
    """Something on the way from a tensor outwards."""

    __slots__ = ("depth", "inner", "link", "thing")

    def __init__(self, thing: Any, inner: _Node | None, link: Link) -> None:
        self.thing, self.inner, self.link = thing, inner, link
        self.depth: int = 0 if inner is None else inner.depth + 1


class _Walk:
    """The search for the holder of one storage, from the tensors over it, or that keep it.

    Attributes:
        place: Where the storage is; None where there is none any more.
        has_graph: Whether a tensor over it has a graph; None where Python has no tensor over it.
        is_of_graph: Whether the tensors are those in whose graph it is.
        kept: The identities of all tensors that stayed of the kind.
    """

    def __init__(self, place: Place | None, tensors: Iterable[Any]) -> None:
        self.place = place
        self.queue: deque[_Node] = deque()
        self.seen: set[int] = set()
        self.is_of_graph = self.is_cut = self.has_cycle = False
        self.looks = 0
        self.holder: Holder | None = None
        self.kept: frozenset[int] = frozenset()
        self._begin(tensors)
        graphs = [node.thing.grad_fn is not None for node in self.queue if place is not None]
        self.has_graph: bool | None = any(graphs) if graphs else None

    def begin_at_graph(self, keepers: Iterable[Any]) -> None:
        """Nothing named refers to it: go on from the tensors whose graphs keep it."""
        self.is_of_graph, self.looks = True, 0
        self.holder = None
        self._begin(keepers)

    def _begin(self, tensors: Iterable[Tensor]) -> None:
        self.queue.extend(_Node(tensor, None, Link()) for tensor in tensors)
        self.seen = {id(node.thing) for node in self.queue}

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
        is_hasty: Whether there was no time to follow all graphs.
        left_out: How many tensors there was no time for.
    """

    def __init__(self, recording: Recording, kept: Sequence[Sought]) -> None:
        self.is_done = not kept
        self._recording = recording
        self._kept = kept
        self._walks: list[_Walk] = []
        self._places: Places | None = None
        self._is_begun = self._has_asked_graphs = self.is_hasty = False
        self.left_out = 0

    def advance(self) -> None:
        """Do the next piece of the work."""
        if not self._is_begun:
            self._begin()
            return
        if self._places is None:
            self._places = Places(self._recording)
        walk = next((walk for walk in self._walks if walk.holder is None), None)
        if walk is not None:
            self._advance(walk, self._places)
        elif not self._has_asked_graphs:
            self._has_asked_graphs = True
            self._ask_graphs(self._places)
        else:
            self.is_done = True

    def renew(self) -> None:
        """Time has passed: names are to be read anew, and what was met may have gone.

        Where it was, something else may be by now, which has not been looked at.
        """
        self._places = None
        for walk in self._walks:
            walk.forget_the_gone()

    def holders(self) -> list[Holder]:
        """One for each that was asked for."""
        found = [walk.holder or Holder("unknown") for walk in self._walks]
        return found or [Holder("unknown") for _ in self._kept]

    def close(self) -> None:
        """Let go of everything."""
        for walk in self._walks:
            walk.queue.clear()
        self._places, self._kept = None, ()
        self.is_done = True

    def _begin(self) -> None:
        """Take one storage of each kind: not the newest, which a variable may hold besides."""
        self._is_begun = True
        found = tensors_over({at for kept in self._kept for _, at in kept.places})
        over, self.left_out = found.by_place, found.left_out
        for kept in self._kept:
            shown = [place for place in kept.places if place in over] or kept.places
            place = shown[(len(shown) - 1) // 2] if shown else None
            tensors = [] if place is None else over.get(place, [])
            if kept.tensor_id is not None:
                tensors = [tensor for tensor in tensors if id(tensor) == kept.tensor_id]
            things = tensors if kept.thing is None else [kept.thing]
            walk = _Walk(place, things)
            walk.kept = frozenset(id(one) for at in kept.places for one in over.get(at, ())[-1:])
            walk.is_cut = bool(self.left_out and not things)  # one left out may be over it
            self._walks.append(walk)

    def _ask_graphs(self, places: Places) -> None:
        """Of what nothing named refers to, go on from the tensors whose graphs keep it.

        They are followed at once: a step later, what a variable holds may be another tensor.
        """
        rest = [w for w in self._walks if w.holder is not None and w.holder.kind in _UNNAMED]
        wanted = {walk.place for walk in rest if walk.place is not None}
        keepers, is_whole = graph_keepers(wanted) if wanted else ({}, True)
        if not is_whole:  # a graph that was not walked may keep it, native code as well
            for walk in rest:
                walk.holder = Holder("unknown", has_graph=walk.has_graph)
        begun = [walk for walk in rest if walk.place in keepers]
        keys = [tuple([id(k) for k in keepers[walk.place]]) for walk in begun if walk.place]
        for walk in begun:
            walk.begin_at_graph(keepers[walk.place] if walk.place else ())
        keepers.clear()  # what is on the way would be referred to from here, too
        known: dict[tuple[int, ...], Holder] = {}
        until = time.perf_counter() + _GRAPHS_S
        for walk, key in zip(begun, keys, strict=True):
            while walk.holder is None and key not in known:
                if self.is_hasty or time.perf_counter() >= until:
                    self.is_hasty = True
                    break
                self._advance(walk, places)
            found = known.setdefault(key, walk.holder or Holder("unknown"))
            walk.holder = found._replace(has_graph=walk.has_graph)
            walk.queue.clear()

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

    def _is_own(self, thing: object, walk: _Walk) -> bool:
        """Whether an object is of the search itself."""
        own = (self._walks, walk.queue, walk.__dict__, self.__dict__)
        return any(thing is each for each in own)

    def _finish(self, walk: _Walk, node: _Node | None) -> None:
        """Note what was found, and let go of what was met."""
        walk.queue.clear()
        if node is not None:
            walk.holder = _holder_of(node, walk)
            return
        kind = "cycle" if walk.has_cycle else "unknown" if walk.is_of_graph else "native"
        if walk.is_cut or walk.looks >= _MOST_LOOKS or walk.place is None:
            kind = "unknown"
        walk.holder = Holder(kind, has_graph=walk.has_graph)


def _holder_of(outermost: _Node, walk: _Walk) -> Holder:
    """What the way from the outermost object to the tensor is called."""
    last = outermost.link
    path, container = "", None
    things: list[Any] = []
    names: list[str] = []
    is_traceback = False
    file, line_of = last.file, last.line_of
    node: _Node | None = outermost
    is_named = False
    while node is not None:
        link = node.link
        if not is_named:
            path += link.text
            container = link.container or container
        if link.file is not None and link.variable is not None:
            file, line_of = link.file, link.line_of
        names += [link.variable] if link.variable else []
        is_traceback |= link.is_traceback
        is_named = link.names_next
        things.append(node.thing)
        node = node.inner
    own = "traceback" if is_traceback else str(last.kind)
    return Holder(
        kind="graph" if walk.is_of_graph else own,
        path=path.lstrip("."),
        place=last.place,
        container=container,
        bound=bound_on_way(things, frozenset() if walk.is_of_graph else walk.kept),
        file=file,
        line_of=line_of,
        names=tuple(dict.fromkeys(reversed(names))),
        has_graph=walk.has_graph,
    )
