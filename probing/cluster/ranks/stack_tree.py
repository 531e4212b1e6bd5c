"""Classes of stacks as a tree, so that what they have in common is said once.

Rules of this file: pure. As in STAT (Lawrence Livermore's stack trace analysis tool), a node is a
run of frames that the same ranks go through, and the branches below it are labelled with theirs.
Classes part where their lines do, one frame before their functions: the line that was taken is
what one looks for. The branch of the fewest ranks comes first.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...messages.frozen import dataclass
from .naming import Rank, in_order
from .stack_classes import MergedFrame, StackClass


@dataclass(frozen=True, slots=True, kw_only=True)
class StackNode:
    """A run of frames without a branch.

    Attributes:
        ranks: Who goes through it.
        frames: Outermost first.
        ends: The class whose stack ends here, if one does.
        branches: Where the others go from here.
    """

    ranks: tuple[Rank, ...]
    frames: tuple[MergedFrame, ...]
    ends: StackClass | None
    branches: tuple[StackNode, ...]


def stack_trees(classes: Sequence[StackClass]) -> tuple[StackNode, ...]:
    """The trees of classes of one role, one for each outermost frame."""
    return _branches(classes, 0)


def _branches(classes: Sequence[StackClass], depth: int) -> tuple[StackNode, ...]:
    """Where classes go from the frame at a depth on."""
    nodes = [_node(group, depth) for group in _groups(classes, depth)]
    return tuple(sorted(nodes, key=lambda node: (len(node.ranks), str(node.ranks[:1]))))


def _groups(classes: Sequence[StackClass], depth: int) -> list[list[StackClass]]:
    """The classes that share the frame at a depth, apart from those that end before it."""
    groups: dict[MergedFrame, list[StackClass]] = {}
    for one in classes:
        if depth < len(one.frames):
            groups.setdefault(one.frames[depth], []).append(one)
    return list(groups.values())


def _node(classes: Sequence[StackClass], start: int) -> StackNode:
    """The node at which classes go on together, as far as they do."""
    depth = start + 1
    while not _ends(classes, depth) and len(_groups(classes, depth)) == 1:
        depth += 1
    return StackNode(
        ranks=in_order(rank for one in classes for rank in one.ranks),
        frames=classes[0].frames[start:depth],
        ends=_ends(classes, depth),
        branches=_branches(classes, depth),
    )


def _ends(classes: Sequence[StackClass], depth: int) -> StackClass | None:
    return next((one for one in classes if len(one.frames) == depth), None)
