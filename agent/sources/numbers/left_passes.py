"""Which gradients have a backward pass in them that was made for another optimizer.

Rules of this file: as `kept_passes`; of the graph of a loss it reads no tensor. A generator's loss
goes back through the critic and leaves gradients there: if nobody sets them to zero, the critic's
own pass adds to them. Not so the other way round: what a part that comes first in the model has of
the loss of a part behind it may be meant for it. Nor is told what the passes of several optimizers
gather together.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..calls.backward.graph_nodes import inputs_of, leaf_at, node_of
from ..shared.versions import AsSeen, as_seen
from .gradient_tensors import is_zero

Groups = Mapping[str, Sequence[Any]]
"""The parameters of each optimizer, by its name."""
_MOST_NODES = 50_000
_LONGEST_S = 0.05
"""What looking at a graph may cost the training thread."""
_MADE_OF = 3
"""A weight may be computed from so many parameters, as weight norm and low ranks do."""
_NONE: frozenset[Any] = frozenset()


class _Made(NamedTuple):
    """A gradient as a backward pass has left it.

    Attributes:
        behind: The optimizers whose parameters this pass has reached through this one; none where
            it was not seen.
        spent_by: The one of them that has stepped since.
        left_by: The one that has used a pass before this, which is in it, too.
    """

    seen: AsSeen
    behind: frozenset[str] = _NONE
    spent_by: str | None = None
    left_by: str | None = None


class LeftPasses:
    """Follows gradients from pass to pass, also those that no optimizer uses meanwhile."""

    def __init__(self) -> None:
        self._made: dict[int, _Made] = {}
        self._behind: Mapping[str, frozenset[str]] = {}
        self._has_given_up = False

    def begins(self, losses: Iterable[Any], groups: Groups) -> None:
        """A backward pass begins: what the script has changed since the last is of that no more."""
        found = behind(groups, losses) if len(groups) > 1 and not self._has_given_up else {}
        self._behind, self._has_given_up = found or {}, self._has_given_up or found is None
        for parameters in groups.values():
            for parameter in parameters:
                gradient, made = parameter.grad, self._made.get(id(parameter))
                if gradient is None or gradient.is_inference():
                    self._made.pop(id(parameter), None)
                elif made is None or not _is_as_left(gradient, made):
                    self._made[id(parameter)] = _Made(as_seen(gradient))

    def passed(self, groups: Groups) -> None:
        """A backward pass has ended."""
        changed = {name: list(filter(self._is_changed, own)) for name, own in groups.items()}
        is_alone = sum(map(bool, changed.values())) == 1
        for name, own in changed.items():
            for parameter in own:
                gradient, made = parameter.grad, self._made.get(id(parameter))
                is_added = made is not None and made.seen.is_in(gradient, changes=1)
                left_by = made.spent_by or made.left_by if made is not None and is_added else None
                self._made[id(parameter)] = _Made(
                    as_seen(gradient),
                    self._behind.get(name, _NONE),
                    left_by=left_by if is_alone else None,
                )

    def _is_changed(self, parameter: Any) -> bool:
        """Whether the pass that has ended made or changed the gradient of a parameter."""
        gradient, made = parameter.grad, self._made.get(id(parameter))
        if gradient is None or gradient.is_inference():
            return False
        return made is None or not made.seen.is_in(gradient, changes=0)

    def steps(self, name: str) -> None:
        """An optimizer is about to step."""
        for key, made in self._made.items():
            if name in made.behind:
                self._made[key] = made._replace(spent_by=name)

    def take(self, parameter: Any, gradient: Any) -> str | None:
        """Who has left something in a gradient that its own optimizer is about to use."""
        made = self._made.pop(id(parameter), None)
        return made.left_by if made is not None and made.seen.is_of(gradient) else None


def _is_as_left(gradient: Any, made: _Made) -> bool:
    """Whether a gradient is what a pass has left; `gradient.data.zero_()` changes no version."""
    return made.seen.is_in(gradient, changes=0) and (made.spent_by is None or not is_zero(gradient))


class _Below(NamedTuple):
    """What the graph has below a node.

    Attributes:
        owners: The optimizers of the parameters there.
        leaves: These parameters; None for more than a weight is made of.
    """

    owners: frozenset[str]
    leaves: frozenset[int] | None

    @property
    def owner(self) -> str | None:
        """Whose it is, if it is a weight: a parameter, or what is computed from some alone."""
        is_weight = self.leaves and len(self.owners) == 1
        return next(iter(self.owners)) if is_weight else None


def behind(groups: Groups, losses: Iterable[Any]) -> dict[str, frozenset[str]] | None:
    """The optimizers whose parameters some losses reach through those of each.

    So it is where a weight of the one meets an input that depends on the other. Nothing is known of
    what is computed anew in the backward pass.

    Returns:
        By the name of each, the others; None for a graph that is too large to be looked at.
    """
    owner_of = {id(parameter): name for name, own in groups.items() for parameter in own}
    below: dict[Any, _Below] = {}
    found: dict[str, frozenset[str]] = {}
    todo = [node for loss in losses if (node := node_of(loss)) is not None]
    until = time.thread_time() + _LONGEST_S
    while todo:
        if len(todo) + len(below) > _MOST_NODES or time.thread_time() > until:
            return None
        node = todo[-1]
        inputs = inputs_of(node)
        new = [one for one in inputs if one not in below]
        if new and node not in below:
            todo += new
            continue
        todo.pop()
        parts = [below[one] for one in inputs]
        for part in parts if node not in below else ():
            if (owner := part.owner) is not None:
                others = frozenset().union(*(one.owners for one in parts)) - {owner}
                found[owner] = found.get(owner, _NONE) | others
        below[node] = _together(parts) if inputs else _leaf(node, owner_of)
    return found


def _leaf(node: Any, owner_of: Mapping[int, str]) -> _Below:
    key = id(leaf_at(node))
    return _Below(frozenset({owner_of[key]}), frozenset({key})) if key in owner_of else _NOTHING


def _together(parts: Sequence[_Below]) -> _Below:
    leaves = frozenset(key for part in parts for key in part.leaves or ())
    is_many = any(part.leaves is None for part in parts) or len(leaves) > _MADE_OF
    return _Below(_NONE.union(*(part.owners for part in parts)), None if is_many else leaves)


_NOTHING = _Below(_NONE, _NONE)
