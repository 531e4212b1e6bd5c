"""What the doctor looks for and what it says: rules, and findings of them.

Rules of this file: records only. A rule is one `Rule` in the file of its subject; the engine, the
help, the reference page and the tests read the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from ...messages.about.standing import CERTAINTIES as CERTAINTIES, Certainty as Certainty  # noqa: PLC0414
from ...messages.frozen import dataclass

if TYPE_CHECKING:
    from .facts import Facts

Group = Literal["crashed", "stops", "numbers", "memory", "slow"]
GROUPS: dict[Group, str] = {
    "crashed": "It has ended",
    "stops": "It does not go on",
    "numbers": "It computes the wrong thing",
    "memory": "Its memory",
    "slow": "It is slow",
}
ABOUT_NOW = frozenset({"crashed", "stops"})
"""The groups that say how it is at the moment of the look, and of whom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What a rule has found in one process.

    Attributes:
        summary: One sentence: what is wrong, where, by how much.
        since_step: The step since when; None where that is not known or plays no part.
        evidence: What it follows from, a sentence or figure each.
        weight: From 0 to 1: how much of the time, memory or training it is about.
        gravity: Where it is less grave, or graver, than its rule's.
        fix: What to do instead of what the rule says.
        next: The command that shows more, instead of the rule's.
        caused_by: The rule that tells of the cause, and that is told before it.
        ranks: Those that it blames, where it compares ranks.
    """

    certainty: Certainty
    summary: str
    since_step: int | None = None
    evidence: tuple[str, ...] = ()
    weight: float = 0.0
    gravity: int | None = None
    fix: str = ""
    next: str = ""
    caused_by: str = ""
    ranks: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that can be wrong.

    Attributes:
        name: By which it is known in every output; stays the same between versions.
        subject: What is healthy where none of its rules finds anything.
        symptom: What it looks like, in words.
        evidence: What is looked at, with the thresholds and their reason.
        certainty: The surest that it says.
        gravity: From 0 to 100: what comes first.
        fix: What to do.
        source: What the advice is taken from.
        next: The command that shows more; ``ENDPOINT`` stands for the process.
        look: What finds it.
        asks: Statements that the look always asks of the record: all rules' are asked together.
        on_record: What the record alone says, where `look` did not come to its end in time.
        cost_s: How long that takes beyond a query: it waits for steps of the training, or for time
            to pass. What costs less is looked at first.

    A `look` raises `NotLookedAt` where it cannot be judged.
    """

    name: str
    group: Group
    subject: str
    symptom: str
    evidence: str
    certainty: Certainty
    gravity: int
    fix: str
    next: str
    look: Callable[[Facts], Iterable[Sign]]
    source: str = ""
    asks: tuple[str, ...] = ()
    on_record: Callable[[Facts], Iterable[Sign]] | None = None
    cost_s: float = 0.0


def gravest_first(rules: Iterable[Rule]) -> list[Rule]:
    """Rules in the order in which they are judged."""
    return sorted(rules, key=lambda rule: -rule.gravity)


def of_several(_: Facts) -> tuple[Sign, ...]:
    """The look of a rule that compares processes, and finds nothing in a single one."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong with a process or a job.

    Attributes:
        rule: The name of its rule.
        who: The ranks or processes that it is about; empty where one process was asked.
        members: Their names, one by one; empty where one process was asked, or it is about a job.
        whole: The job or process that these are of.
        order: What findings are sorted by, the gravest first.
        caused_by: The rule that tells of its cause.
        blamed: Of whom it tells that, one by one.
    """

    rule: str
    group: Group
    certainty: Certainty
    summary: str
    since_step: int | None
    evidence: tuple[str, ...]
    next: str
    fix: str
    source: str = ""
    who: str = ""
    members: frozenset[str] = frozenset()
    whole: str = ""
    order: tuple[int, float] = (0, 0.0)
    caused_by: str = ""
    blamed: frozenset[str] = frozenset()


_OF_THE_RECORD = {
    "arm": "query @not-finite",
    "dataloaders": "query @data-waits",
    "gradients": "query @gradient-norms",
    "labels": "query @last-steps",
    "leak": "query @memory",
    "memory": "query @memory",
    "profile": "query @slowest-modules",
}
"""What tells most of the same of a process that has ended, and cannot be asked any more."""


_WHILE_IT_RUNS = ("; meanwhile ", " At once, in this run: ")
"""What begins the last part of an advice that is of use only while the process runs."""


def _advice(text: str, asked: str, *, is_alive: bool) -> str:
    """What to do, with commands as they are to be typed, and without what has no use any more."""
    if not is_alive:
        for words in _WHILE_IT_RUNS:
            before, found, _ = text.partition(words)
            text = before.rstrip(".") + "." if found else text
    return text.replace("probing PID ", f"probing {asked} ")


def finding_of(rule: Rule, sign: Sign, *, asked: str, is_alive: bool = True) -> Finding:
    """A sign as it is told.

    Args:
        asked: What stands before a command that asks the same process.
        is_alive: Whether the process, or one of them, runs.
    """
    advised = sign.next or rule.next
    gravity = rule.gravity if sign.gravity is None else sign.gravity
    before, _, command = advised.partition("ENDPOINT ")
    if not is_alive and (instead := _OF_THE_RECORD.get(command.partition(" ")[0])):
        advised = f"{before}ENDPOINT {instead}"
    return Finding(
        rule=rule.name,
        group=rule.group,
        certainty=sign.certainty,
        summary=sign.summary[:1].upper() + sign.summary[1:],
        since_step=sign.since_step,
        evidence=sign.evidence,
        next=advised.replace("ENDPOINT", asked),
        fix=_advice(sign.fix or rule.fix, asked, is_alive=is_alive),
        source=rule.source,
        order=(int(sign.certainty == "possible"), -(gravity + 10 * sign.weight)),
        caused_by=sign.caused_by,
    )
