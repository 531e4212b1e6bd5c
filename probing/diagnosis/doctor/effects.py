"""What follows from what: one cause is told once.

Rules of this file: a finding is left out only where another one that is told says the same, and
more, of the same processes. What is only possible hides nothing that is surer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from .findings import ABOUT_NOW, Finding

PROGRESS, RANKS = "progress", "ranks"
"""The subjects that it gets on, and that ranks are alike."""


def without_effects(findings: list[Finding]) -> list[Finding]:
    """Without what another finding explains: one cause is told once."""
    if any(f.group in ABOUT_NOW and f.certainty != "possible" for f in findings):
        findings = [f for f in findings if f.group != "slow" or f.certainty != "possible"]
    if any(f.certainty != "possible" for f in findings):
        findings = [f for f in findings if f.rule != "crowded-processors"]
    kept = [one for one in findings if not any(_explains(cause, one) for cause in findings)]
    return _causes_first(_earlier_first(kept))


def contradicted(findings: Iterable[Finding]) -> frozenset[str]:
    """Subjects that cannot be called healthy beside what is found, as nobody can judge them."""
    ill: set[str] = set()
    for one in findings:
        if one.group in ABOUT_NOW and one.rule not in _OF_SETTINGS:
            words = " ".join((one.summary, *one.evidence))
            ill |= {"process", PROGRESS, *(s for s, of in _TELLS_OF.items() if of.search(words))}
        clause, subjects = _UNKNOWN_BESIDE.get(one.rule, ("", frozenset()))
        ill |= subjects if clause and clause in one.summary else frozenset()
    return frozenset(ill)


def _explains(cause: Finding, effect: Finding) -> bool:
    """Whether the one says all of the other, of each process that the other is about."""
    return (
        effect.rule in _EXPLAINS.get(cause.rule, ())
        and _is_as_sure(cause, effect)
        and (not cause.members or effect.members <= cause.members)
    )


def _is_as_sure(cause: Finding, effect: Finding) -> bool:
    return cause.certainty != "possible" or effect.certainty == "possible"


def _earlier_first(findings: list[Finding]) -> list[Finding]:
    """With what was wrong with a training before its loss was NaN told before that."""
    bad = next((f for f in findings if f.rule == "loss-not-finite" and f.since_step), None)
    if bad is None:
        return findings
    first = (bad.order[0], bad.order[1] - 1)
    return [
        replace(f, order=first) if f.order > first and _may_lead_to(f, bad) else f for f in findings
    ]


def _causes_first(findings: list[Finding]) -> list[Finding]:
    """With what a rank does told before that it holds up others by doing so."""

    def order(one: Finding) -> tuple[int, float]:
        return max([one.order, *(_after(cause) for cause in findings if _causes(cause, one))])

    return [replace(one, order=order(one)) for one in findings]


def _causes(cause: Finding, effect: Finding) -> bool:
    """Whether it is what the other names as its cause, of all whom that blames, and as sure.

    What blames nobody has its cause in the same processes.
    """
    whom = effect.blamed or effect.members
    return (
        cause.rule == effect.caused_by
        and (whom <= cause.members if whom else not cause.members)
        and _is_as_sure(cause, effect)
    )


def _after(finding: Finding) -> tuple[int, float]:
    """The place right behind it."""
    return finding.order[0], finding.order[1] + 0.1


def _may_lead_to(finding: Finding, bad: Finding) -> bool:
    """Whether it is about the same training, sure enough, and began earlier."""
    return (
        finding.group == bad.group
        and finding.who == bad.who
        and finding.certainty != "possible"
        and finding.since_step is not None
        and finding.since_step < (bad.since_step or 0)
    )


_OF_SETTINGS = frozenset({"unread-variables"})
"""What tells of how it was started, and not of whether it goes on."""
_TELLS_OF = {
    "memory": re.compile(r"(?i)out of memory|OutOfMemory|OOM killer|shared memory"),
    "open files": re.compile(r"Too many open files"),
    "data": re.compile(r"DataLoader|a batch\b"),
    RANKS: re.compile(r"\bcollective|number \d+ of group |other ranks?\b"),
    "checkpoints": re.compile(r"\bcheckpoint"),
    "accelerator": re.compile(r"the device\b|the GPU\b|CUDA error|NCCL"),
    "threads and processes": re.compile(r"\bchild process|\bworker\b"),
}
"""By which words what does not go on, or has ended, is a matter of a subject."""
_UNKNOWN_BESIDE = {
    "every-nth-step": ("evaluation mode", frozenset({"evaluations"})),
    "loss-not-finite": (
        "the weights are lost",
        frozenset({"gradients", "numbers", "parameters", "running statistics"}),
    ),
}
"""By a rule and a clause of its sentence, what nothing can be said of any more."""
_OF_NO_STEP = frozenset(
    {"loss-flat", "never-a-gradient", "own-code", "few-long-steps", "data-wait", "one-module"}
)
"""What steps that fail look like."""
_EXPLAINS: dict[str, frozenset[str]] = {
    "loss-not-finite": frozenset(
        {
            *("loss-flat", "diverging", "exploding-gradients", "scaler-skips", "zero-gradients"),
            "bad-statistics",
        }
    ),
    "clips-nothing": frozenset({"loss-spike", "exploding-gradients", "diverging"}),
    "gradients-not-finite": frozenset({"loss-flat", "no-update", "never-steps"}),
    "ended-quietly": frozenset({"loss-not-finite"}),
    "diverging": frozenset({"exploding-gradients", "loss-spike"}),
    "rate-raised": frozenset(
        {"loss-flat", "loss-spike", "diverging", "exploding-gradients", "rate-too-high"}
    ),
    "rate-too-high": frozenset({"loss-flat", "loss-spike", "diverging", "exploding-gradients"}),
    "scaler-skips": frozenset({"never-steps"}),
    "no-optimizer": frozenset({"never-a-gradient"}),  # of what was replaced
    "never-steps": frozenset({"loss-flat", "not-zeroed", "never-a-gradient"}),
    "failing-calls": _OF_NO_STEP | {"no-backward", "never-steps"},
    "no-backward": _OF_NO_STEP,
    "unused-batches": _OF_NO_STEP,
    "thrown-gradients": frozenset({"loss-flat", "uneven-micro-batches"}),
    "broadcast-loss": frozenset({"loss-flat"}),
    "no-update": frozenset({"loss-flat"}),
    "garbage-collector": frozenset({"own-code", "every-nth-step"}),
    # What is traced are many objects.
    "recompiling": frozenset({"garbage-collector", "every-nth-step"}),
    "checkpoints": frozenset({"own-code", "few-long-steps", "every-nth-step"}),
    "own-code": frozenset({"every-nth-step"}),
    "profiler-on": frozenset({"memory-grows"}),
    "throttled": frozenset({"crowded-processors"}),
    "slower-and-slower": frozenset({"slower-since"}),
    "straggler": frozenset({"collectives"}),
    "object-collectives": frozenset({"collectives", "own-code"}),
    "one-module": frozenset({"own-code"}),
    "synchronises": frozenset({"own-code", "host-bound"}),
    "blocking-copies": frozenset({"own-code", "host-bound"}),
    "rate-zero": frozenset({"loss-flat", "no-update", "rate-cut"}),
    "rate-cut": frozenset({"loss-flat"}),
}
"""What follows from what; nothing hides a comparison of ranks, which is about all of them."""
