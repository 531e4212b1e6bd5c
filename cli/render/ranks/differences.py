"""What differs between ranks: the odd ranks first, then each thing with its groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....cluster.ranks.differences import PARAMETER, Comparison, Difference, Group
from ....cluster.ranks.naming import rank_words
from ..text import escape_controls, plural

_NOUNS = {
    PARAMETER: "parameter",
    "buffer": "buffer",
    "optimizer": "optimizer option",
    "statistic": "running statistic",
    "random": "random state",
    "environment": "environment variable",
    "version": "version",
    "torch": "torch setting",
    "argument": "argument",
    "code": "file or commit",
    "configuration": "configured value",
    "seed": "seed",
    "setting": "probing setting",
    "place": "place",
}
_SHOWN = 8
"""So many things of a kind that the same ranks differ in are shown."""
_VALUE_WIDTH = 60
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def render_differences(compared: Comparison, *, color: bool = False) -> str:
    """The verdict, what differs, and what was the same."""
    blocks = ["\n".join(_verdict(compared, color=color))]
    kinds = dict.fromkeys(one.kind for one in compared.differences)
    for kind in sorted(kinds, key=list(_NOUNS).index):
        same_kind = [one for one in compared.differences if one.kind == kind]
        blocks.append("\n".join(_block(kind, same_kind)))
    if compared.places:
        blocks.append("\n".join(["different by nature:", *_lines(compared.places)]))
    blocks.append("\n".join(_foot(compared)))
    return "\n\n".join(blocks)


def _verdict(compared: Comparison, *, color: bool) -> Iterator[str]:
    """Who differs, in a line for each group of odd ranks."""
    everyone = len(compared.ranks)
    number = plural(everyone, "rank")
    if not compared.ranks:
        yield "nothing can be said: no rank has told anything"
        return
    if not compared.differences:
        yield f"{number}: no difference"
        return
    by_ranks: dict[tuple[object, ...], list[Difference]] = {}
    for one in compared.differences:
        by_ranks.setdefault(one.odd, []).append(one)
    for odd, differences in sorted(by_ranks.items(), key=lambda item: len(item[0]) or everyone):
        names = [escape_controls(one.name) for one in differences]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        who = f"{rank_words(differences[0].odd)} differs" if odd else "no majority"
        who = who if len(odd) < 2 else who[:-1]
        who = f"{_BOLD}{who}{_PLAIN}" if color else who
        yield f"{who}: {', '.join(names[:3])}{more}"


def _block(kind: str, differences: Sequence[Difference]) -> Iterator[str]:
    yield f"{plural(len(differences), _NOUNS[kind])} not the same:"
    yield from _lines(differences[:_SHOWN])
    if len(differences) > _SHOWN:
        yield f"  and {len(differences) - _SHOWN:,} more"


def _lines(differences: Sequence[Difference]) -> Iterator[str]:
    for one in differences:
        about = f"  {one.about}" if one.about else ""
        yield f"  {escape_controls(one.name)}{about}"
        width = max(len(rank_words(group.ranks)) for group in one.groups)
        for group in one.groups:
            yield f"    {rank_words(group.ranks):{width}}  {_value(one, group)}"


def _value(one: Difference, group: Group) -> str:
    if one.is_secret:
        return "(a secret; other ranks have another)"
    if group.value is None:
        return "(not set)"
    value = group.value
    if one.about and value.startswith(f"{one.about} "):
        value = value[len(one.about) + 1 :]
    text = escape_controls(value)
    return text if len(text) <= _VALUE_WIDTH else f"{text[: _VALUE_WIDTH - 1]}…"


def _foot(compared: Comparison) -> Iterator[str]:
    """At which step, and what was the same."""
    if len(compared.steps) == 1:
        yield f"parameters compared {_step(compared.steps[0])}"
    for group in compared.steps[:-1]:
        yield (
            f"parameters of {rank_words(group.ranks)} not compared: seen {_step(group)}, those of"
            f" {rank_words(compared.steps[-1].ranks)} {_step(compared.steps[-1])}"
        )
    if compared.sharded:
        yield f"{plural(compared.sharded, 'parameter')} not compared: each rank holds its own shard"
    equal = [plural(n, _NOUNS[kind]) for kind, n in sorted(compared.equal.items()) if n]
    if equal:
        yield f"the same on all: {', '.join(equal)}"


def _step(group: Group) -> str:
    return "where no step is counted" if group.value is None else f"after step {group.value}"
