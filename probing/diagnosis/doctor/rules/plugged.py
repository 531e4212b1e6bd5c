"""The rules of plugins, beside ours.

Rules of this file: a rule of a plugin's that fails or finds what cannot be told, as a plugin that
cannot be loaded, is something that was not looked at, with the reason; it never hides what other
rules find.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator

from ....errors import ProbingError
from ....plugins import Installed, failure, installed
from ..facts import Facts
from ..findings import CERTAINTIES, GROUPS, Rule, Sign, finding_of
from ..not_looked_at import NotLookedAt

_Look = Callable[[Facts], Iterable[Sign]]
_UNJUDGED = Rule(
    name="plugin",
    group="slow",
    subject="plugins",
    symptom="A plugin's rules cannot be judged.",
    evidence="Its code.",
    certainty="possible",
    gravity=0,
    fix="",
    next="",
    look=lambda _: (),
)


@functools.cache
def plugin_rules(taken: frozenset[str]) -> tuple[Rule, ...]:
    """All rules that plugins add.

    Args:
        taken: The names of rules that there are already.
    """
    found: dict[str, Rule] = {}
    for one in installed():
        for rule in _rules_of(one):
            if rule.name in taken or rule.name in found:
                why = f"there is a rule of the name {rule.name} already"
                unjudged = _unjudged(one.name, why)
                found[unjudged.name] = unjudged
            else:
                found[rule.name] = rule
    return tuple(found.values())


def _rules_of(one: Installed) -> list[Rule]:
    """The rules of a plugin, each to be judged under guard."""
    if one.problem is not None:
        return [_unjudged(one.name, one.problem)]
    try:
        rules = list(one.plugin.rules() if one.plugin.rules is not None else ())
    except Exception as error:  # noqa: BLE001 - a plugin may fail as it likes
        return [_unjudged(one.name, failure(error))]
    strangers = [rule for rule in rules if not isinstance(rule, Rule)]
    if strangers:
        return [_unjudged(one.name, f"{strangers[0]!r} is no probing.rules.Rule")]
    return [_under_guard(one.name, rule) for rule in rules]


def _under_guard(name: str, rule: Rule) -> Rule:
    """A rule whose looks are guarded.

    What it asks is asked one by one, since one wrong statement would spoil all asked together.
    """
    on_record = _guarded(name, rule, rule.on_record) if rule.on_record is not None else None
    return dataclasses.replace(
        rule, look=_guarded(name, rule, rule.look), on_record=on_record, asks=()
    )


def _unjudged(name: str, why: str) -> Rule:
    """A rule that says why a plugin's are not judged."""

    def look(_: Facts) -> Iterable[Sign]:
        raise NotLookedAt(f"plugin {name}: {why}")

    return dataclasses.replace(_UNJUDGED, name=f"plugin {name}", look=look)


def _guarded(name: str, rule: Rule, look: _Look) -> _Look:
    """A look whose failure says whose it is, as does a sign that could not be told."""

    def guarded(facts: Facts) -> Iterator[Sign]:
        try:
            for sign in look(facts):
                _check(rule, sign)
                yield sign
        except (NotLookedAt, ProbingError):
            raise
        except Exception as error:
            raise NotLookedAt(f"plugin {name} failed: {failure(error)}") from error

    return guarded


def _check(rule: Rule, sign: object) -> None:
    """Make sure that a sign is one, and can be told.

    Raises:
        Exception: It cannot.
    """
    if not isinstance(sign, Sign):
        raise TypeError(f"{sign!r} is no probing.rules.Sign")
    if sign.certainty not in CERTAINTIES or rule.group not in GROUPS:
        raise ValueError(f"there is no {sign.certainty} finding in the group {rule.group}")
    evidence: object = sign.evidence
    if isinstance(evidence, str) or not math.isfinite(sign.weight):
        raise ValueError(f"{evidence!r} is no tuple, or {sign.weight} is no weight")
    operator.index(0 if sign.since_step is None else sign.since_step)
    operator.index(0 if sign.gravity is None else sign.gravity)
    "".join((finding_of(rule, sign, asked="").summary, *sign.evidence))
