"""Stacks of many ranks: which ranks are where, then the tree of how they came there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ....cluster.ranks.naming import Rank, rank_words
from ....cluster.ranks.stack_classes import MAIN, MergedFrame, MergedStacks, StackClass
from ....cluster.ranks.stack_tree import StackNode, stack_trees
from ..text import escape_controls, plural

_LINES_SHOWN = 3
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def render_stack_classes(merged: MergedStacks, *, color: bool = False) -> str:
    """A line for each class, the odd ones first, then each role's tree."""
    blocks = ["\n".join(_head(merged))]
    by_role = [(role, list(ones)) for role, ones in groupby(merged.classes, lambda c: c.thread)]
    summary = [f"{rank_words([rank])}: no stack: {_safe(why)}" for rank, why in merged.without]
    summary += [_summary(one, color=color) for _, ones in by_role[:1] for one in ones]
    if summary:
        blocks.append("\n".join(summary))
    for role, ones in by_role:
        title = "main thread" if role == MAIN else f'thread "{_safe(role)}"'
        blocks.append("\n".join([f"{title}:", *_trees(ones)]))
    return "\n\n".join([*blocks, *_foot(merged)])


def render_folded_classes(merged: MergedStacks) -> str:
    """One line per class, as flame graph tools read them, with the ranks as root."""
    lines = []
    for one in merged.classes:
        role = [] if one.thread == MAIN else [one.thread]
        words = [rank_words(one.ranks), *role, *map(_place, one.frames)]
        lines.append(f"{';'.join(_safe(word).replace(';', ':') for word in words)} {one.threads}")
    return "\n".join(lines)


def _head(merged: MergedStacks) -> list[str]:
    """How many ranks, how many stacks, and whether they move."""
    main = [one for one in merged.classes if one.thread == MAIN]
    head = f"{plural(len(merged.asked), 'rank')}, {_stacks(len(main))} of the main thread"
    if merged.looks == 1:
        return [head]
    moving = [rank for one in main for rank in one.moving]
    same = [rank for one in main for rank in one.same]
    times = f"{merged.looks} of {merged.looks} looks"
    if not same:
        return [f"{head}; all ranks move"]
    if not moving:
        return [f"{head}; no rank moves: the same in {times}"]
    return [f"{head}; {rank_words(same)}: the same in {times}; {rank_words(moving)}: moving"]


def _stacks(number: int) -> str:
    return f"{number} different stacks" if number != 1 else "one stack"


def _summary(one: StackClass, *, color: bool) -> str:
    who = rank_words(one.ranks)
    who = f"{_BOLD}{who}{_PLAIN}" if color else who
    inner = one.frames[-1]
    own = next((frame for frame in reversed(one.frames) if frame.is_own), inner)
    caller = "" if own is inner else f", called from {_safe(_place(own))}"
    return f"{who}: {_safe(_place(inner))}{caller}{_about(one)}"


def _about(one: StackClass) -> str:
    """What a class does, and whether it moves, as clauses."""
    doing = f": {' or '.join(map(_safe, one.waiting))}" if one.waiting else ""
    if one.moving and one.same:
        return f"{doing} ({rank_words(one.moving)}: moving)"
    return f"{doing} (moving)" if one.moving else doing


def _trees(classes: Sequence[StackClass]) -> Iterator[str]:
    for node in stack_trees(classes):
        yield f"  {rank_words(node.ranks)}"
        yield from _node(node, "  ")


def _node(node: StackNode, indent: str) -> Iterator[str]:
    """A node's frames and its branches, each with its ranks above it."""
    for frame in node.frames:
        yield f"{indent}  {_safe(_place(frame))}"
    last = node.frames[-1]
    if last.line and (node.ends or node.branches):
        yield f"{indent}      {_safe(last.line)}"
    if node.ends is not None and node.branches:
        yield f"{indent}  - {rank_words(node.ends.ranks)} here{_about(node.ends)}"
    for number, branch in enumerate(node.branches, 1):
        is_last = number == len(node.branches)
        yield f"{indent}  {'└' if is_last else '├'}─ {rank_words(branch.ranks)}{_end_words(branch)}"
        yield from _node(branch, f"{indent}  {' ' if is_last else '│'} ")


def _end_words(node: StackNode) -> str:
    """What those do who end at a node without branches."""
    return _about(node.ends) if node.ends is not None and not node.branches else ""


def _foot(merged: MergedStacks) -> list[str]:
    """What was left out, and how stacks were had."""
    lines = []
    if merged.idle_threads:
        whose = rank_words(merged.idle_ranks)
        lines.append(f"left out: {plural(merged.idle_threads, 'idle pool thread')} of {whose}")
    remarks: dict[str, list[Rank]] = {}
    for rank, why in merged.remarks:
        remarks.setdefault(why, []).append(rank)
    lines += [f"{rank_words(ranks)}: {_safe(why)}" for why, ranks in remarks.items()]
    return ["\n".join(lines)] if lines else []


def _place(frame: MergedFrame) -> str:
    if frame.kind != "python":
        return f"{frame.func} ({frame.kind} {frame.file})"
    short = frame.file.rpartition("/")[2] if frame.is_own else frame.file
    if not frame.linenos:
        return f"{frame.func} ({short})"
    more = "..." if len(frame.linenos) > _LINES_SHOWN else ""
    lines = ",".join(map(str, frame.linenos[:_LINES_SHOWN])) + more
    return f"{frame.func} ({short}:{lines})"


def _safe(text: str) -> str:
    return escape_controls(text)
