"""All rules on one process: by its record first, then by what it is asked, the cheapest first.

Rules of this file: whatever a live question costs, the record has been judged before it, as to what
is gravest first. So each rule is run with all live questions kept back; one that wants none has
been judged by that. The others are run again once the process may be asked. If time runs out before
that, what their records have shown is told; where that is nothing, they were not judged, and never
found healthy.
Where even the record was slow, those are judged at last that need no more of it than what is there.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ....errors.querying import told_of
from ....messages.frozen import dataclass
from ..findings import Rule, Sign, gravest_first
from ..not_looked_at import ENDED, LATE, NOT_THOROUGH, NotLookedAt
from ..ranks.job_rules import JOB_RULES
from ..rules import RULES
from ..rules.numbers.acted import with_acts
from ..rules.plugged import plugin_rules
from ..scope import LIVE_UNTIL, Clock

if TYPE_CHECKING:
    from ....cluster.job.members import Member
    from ..facts import Facts

_ENVIRONMENT, _TABLE = "live environment", "live "
"""What is asked first, since it is a few values that the agent has at hand; and then: its tables.
All else waits for the training, or holds it for a moment."""

_GRAVEST = 88
"""From that gravity on a rule is judged in any case, if only by what costs next to nothing: that it
hangs, that it has ended and how, that its loss is not finite."""


@dataclass(slots=True)
class Judged:
    """What the rules have come to for one process.

    Attributes:
        done: The names of those that have been judged.
        by_record: What the record has shown of others until then, by their names.
    """

    member: Member
    facts: Facts
    found: list[tuple[Rule, Sign]]
    missed: dict[str, str]
    done: set[str] = dataclasses.field(default_factory=set)
    by_record: dict[str, list[Sign]] = dataclasses.field(default_factory=dict)

    def settle(self, rule: Rule, signs: Iterable[Sign], why: str | None) -> None:
        """Take down what has become of a rule."""
        self.found += [(rule, sign) for sign in with_acts(self.facts, signs)]
        if why is not None:
            self.missed[rule.name] = why
        self.done.add(rule.name)


class _Pending(NamedTuple):
    """A rule that the record was not enough for.

    Attributes:
        wanted: What it wanted to ask first.
    """

    rule: Rule
    wanted: str
    has_signs: bool

    @property
    def order(self) -> tuple[float, bool, int]:
        """What takes long comes last, and what only adds to a finding after what may be one."""
        is_table = self.wanted.startswith(_TABLE)
        asks = 0 if self.wanted == _ENVIRONMENT else 1 if is_table else 2
        return self.rule.cost_s, self.has_signs, asks


def all_rules() -> tuple[Rule, ...]:
    """Ours and those of plugins."""
    names = frozenset(rule.name for rule in RULES) | {one.rule.name for one in JOB_RULES}
    return (*RULES, *plugin_rules(names))


def _is_ours(rule: Rule) -> bool:
    return any(rule is one for one in RULES)


def judge(judged: Judged, *, is_thorough: bool = True, clock: Clock | None = None) -> None:
    """All rules on one process, one after the other.

    Args:
        is_thorough: Also by what takes time.
        clock: The time of all of it; None for as much as the facts have.
    """
    facts = judged.facts
    left_s = facts.live_time.left_s
    late = LATE if clock is None else clock.late()
    pending = []
    for rule in gravest_first(all_rules()):
        facts.live_time.hold(late)
        if (one := _judge_by_record(judged, rule, is_thorough=is_thorough)) is not None:
            pending.append(one)
    facts.live_time.begin(left_s if clock is None else clock.left_s(LIVE_UNTIL), late=late)
    for rule, *_ in sorted(pending, key=lambda one: one.order):
        look = rule.look
        if rule.cost_s and not is_thorough and rule.on_record is not None:
            look = rule.on_record
        signs, why = run(functools.partial(look, facts))
        if why is not None and why.startswith(LATE):
            signs = judged.by_record.get(rule.name, [])
            why = None if signs else why
        judged.settle(rule, signs, why)


def _judge_by_record(judged: Judged, rule: Rule, *, is_thorough: bool) -> _Pending | None:
    """Judge a rule without a live question; what there is of it where that is not enough."""
    facts, look = judged.facts, rule.on_record or rule.look
    is_costly = bool(rule.cost_s)
    if is_costly and rule.on_record is None:
        if not is_thorough:
            judged.settle(rule, (), NOT_THOROUGH)
            return None
        if not _is_ours(rule):  # a plugin's may take the time without asking us
            return _Pending(rule, "", has_signs=False)
    signs, why = run(functools.partial(look, facts))
    wanted = facts.live_time.wanted
    if wanted is None and (rule.on_record is None or not is_thorough):
        judged.settle(rule, signs, why)
        return None
    judged.by_record[rule.name] = signs
    return _Pending(rule, wanted or "", has_signs=bool(signs))


def _by_what_is_known(rule: Rule, facts: Facts, late: str) -> tuple[list[Sign], str | None]:
    """Judge a rule without asking anybody anything, the record included.

    Returns:
        What it finds; where that is nothing, why it could not be judged, if so.
    """
    is_costly = rule.cost_s and rule.on_record is None
    if is_costly or not _is_ours(rule):  # a plugin's may ask by itself
        return [], late
    facts.is_closed, facts.has_refused = True, False
    facts.live_time.hold(late)
    signs, why = run(functools.partial(rule.on_record or rule.look, facts))
    if signs and not facts.has_refused:  # else what would have spoken against it was not read
        return signs, None
    lacks = facts.has_refused or facts.live_time.wanted is not None or rule.on_record is not None
    is_sure = why is None or why.startswith(ENDED)  # it may be the few steps that are known
    return [], why if is_sure and not lacks else late


def as_it_is(judged: Judged, why_late: str, *, end_s: float = math.inf) -> Judged:
    """What was judged until now: a thread may still be at it, and is not waited for.

    Of the rules that it has not come to, the gravest first, those are judged that need nothing but
    what it has read, or a glance at a file.

    Args:
        end_s: After that none is begun but the gravest, by the monotonic clock.
    """
    done, by_record = set(judged.done), dict(judged.by_record)
    found = [(rule, sign) for rule, sign in tuple(judged.found) if rule.name in done]
    late: dict[str, str] = {}
    for rule in gravest_first(rule for rule in all_rules() if rule.name not in done):
        signs = by_record.get(rule.name, [])
        why = None if signs else why_late
        may_begin = rule.gravity >= _GRAVEST or time.monotonic() < end_s
        if rule.name not in by_record and may_begin:
            signs, why = _by_what_is_known(rule, judged.facts, why_late)
        found += [(rule, sign) for sign in signs]
        if why is not None:
            late[rule.name] = why
    missed = {name: why for name, why in dict(judged.missed).items() if name in done} | late
    return dataclasses.replace(judged, found=found, missed=missed)


def run(look: Callable[[], Iterable[Sign]]) -> tuple[list[Sign], str | None]:
    """What a rule finds, or why it could not be judged."""
    found: list[Sign] = []
    try:
        for sign in look():
            found.append(sign)  # noqa: PERF402 - what came before an error counts
    except NotLookedAt as error:
        return found, str(error)
    except Exception as error:  # noqa: BLE001 - one rule that fails must not hide the others
        return found, told_of(error).message.rstrip(".")
    return found, None
