"""Which models of the ranks of a job are the same.

Rules of this file: pure. A model's name is that of the first variable that held it, else its class
with a number, so the names of models of one class may change places from rank to rank, as where
one rank has evaluated an average of the parameters first. Equal parameters tell more than names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .differences import PARAMETER

OF_MODELS = frozenset({PARAMETER, "buffer", "statistic"})
"""Kinds of facts that are about a model."""
Owners: TypeAlias = Mapping[tuple[str, str], str | None]
"""What each model of a rank is called, by its class and its name; None if nobody knows which of
the others it is."""
_Content: TypeAlias = frozenset[tuple[str, str]]
"""The whole parameters of a model, with their checksums."""


def owners_of(ranks: Sequence[Sequence[Mapping[str, Any]]]) -> list[Owners]:
    """What the models of each rank are called before the names of their parameters.

    The same on all ranks, some of which may have another model besides: nothing where there is one
    in all, else the class, and the name of those that share it, as a generator and a critic may.

    Args:
        ranks: The rows of python.parameter_checksums of each.
    """
    each = [_models(rows) for rows in ranks]
    counts = [Counter(root for root, _ in models) for models in each]
    alike = {root for found in counts for root, number in found.items() if number > 1}
    several = alike or len({root for found in counts for root in found}) > 1
    known: dict[str, dict[str, set[_Content]]] = {root: {} for root in alike}
    told: list[Owners] = []
    for models in each:
        names: dict[tuple[str, str], str | None] = {
            (root, model): root if several else "" for root, model in models
        }
        for root in alike:
            own = {model: held for (of, model), held in models.items() if of == root}
            names |= {(root, model): name for model, name in _names(own, known[root]).items()}
        told.append(names)
    return told


def _models(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], _Content]:
    held: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for row in rows:
        if row["kind"] in OF_MODELS:
            content = held.setdefault((row["root"], row["model"]), set())
            if row["kind"] == PARAMETER and row["checksum"] is not None and not row["is_shard"]:
                content.add((row["parameter"], row["checksum"]))
    return {model: frozenset(content) for model, content in held.items()}


def _names(own: Mapping[str, _Content], known: dict[str, set[_Content]]) -> dict[str, str | None]:
    """The names of a rank's models of one class, where other ranks have them under others.

    Args:
        known: What other ranks have by each name, to which this rank's is added.
    """
    names: dict[str, str | None] = {
        model: model for model, content in own.items() if content in known.get(model, ())
    }
    for model, content in own.items():
        if model not in names and content:
            like = (n for n, held in known.items() if content in held and n not in names.values())
            if (name := next(like, None)) is not None:
                names[model] = name
    is_by_name = all(model == name for model, name in names.items())
    names = {model: names.get(model, model if is_by_name else None) for model in own}
    for model, name in names.items():
        if name is not None:
            known.setdefault(name, set()).add(own[model])
    return names
