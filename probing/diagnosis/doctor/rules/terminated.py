"""The rule about who was asked to end by a SIGTERM: that is no crash.

Rules of this file: how it ended is told by the verdict of `hang`; nothing is judged here but
whether it stood still by then.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....postmortem.terminations import termination_of
from ....units import duration
from ...hang.case import LEAST_THRESHOLD_S
from ..facts import Facts
from ..findings import Rule, Sign
from ..not_looked_at import NotLookedAt

_LONG = 10.0
"""A step that took so many times as long as others is worth a word."""


def _terminated(facts: Facts) -> Iterator[Sign]:
    verdict = facts.verdict
    if verdict is None or not verdict.is_terminated:
        return
    step, still = _by_then(facts)
    of_causes = (line for one in verdict.causes for line in one.evidence[:2])
    yield Sign(
        certainty="certain",
        summary=verdict.headline,
        since_step=step,
        evidence=tuple(dict.fromkeys((*still, *of_causes))),
        weight=1.0,
    )


def _by_then(facts: Facts) -> tuple[int | None, tuple[str, ...]]:
    """The step it was in, and that it had been in that for long, if so."""
    try:
        steps = facts.steps
    except NotLookedAt:
        facts.has_refused = False  # the end is told without it
        return None, ()
    if steps.open is None:
        return (steps.numbers[-1] if len(steps) else None), ()
    step, usual_s = int(steps.open["step"]), steps.settled().median_s
    asked = termination_of(facts.folder, None) if facts.folder is not None else None
    if asked is None:
        return step, ()
    took_s = (asked.when_ns - steps.open["start_ns"]) * 1e-9
    if not took_s > max(LEAST_THRESHOLD_S, _LONG * usual_s):
        return step, ()
    words = f"step {step} had gone on for {duration(took_s)} by then, where others take"
    return step, (f"{words} {duration(usual_s)}: it may have hung, and have been ended for that",)


RULES = (
    Rule(
        name="terminated",
        group="crashed",
        subject="process",
        symptom="There is no process any more, and its output just stops, or says Terminated.",
        evidence="A SIGTERM before its end, with who sent it and when, or an exit status that says"
        " so; and whether its last step had gone on for 10 times as long as others by then.",
        certainty="certain",
        gravity=96,
        fix="This is no crash: SIGTERM is how a scheduler ends what is cancelled, preempted or over"
        " its time limit, as do Kubernetes, docker stop and timeout, and torchrun and mpirun once"
        " they are asked to end or another rank has failed. Ask whoever sent it for the reason;"
        " to lose no steps, have a handler of SIGTERM save a checkpoint.",
        next="probing ENDPOINT backtrace",
        look=_terminated,
    ),
)
