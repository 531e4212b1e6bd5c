"""Rules about what does not go on, or has ended: the verdict of `hang`, and how it ended.

Rules of this file: nothing is judged here that `hang` judges: its verdict is told with its reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from ....postmortem.last_known import has_last_stack
from ....rundir.folders import RunDirectory
from ....units import duration
from ...hang.words.known import plain_lines
from ...hang.words.texts import UNASKED, UNRECORDED
from ..facts import Facts
from ..findings import Certainty, Rule, Sign
from ..not_looked_at import NotLookedAt

if TYPE_CHECKING:
    from ...hang.evidence import Cause, Verdict

_SURE: dict[str, Certainty] = {"high": "certain", "medium": "likely", "low": "possible"}


_AS_BEFORE = 2.0
"""A pause that is no more than so many times as long as one before it may be over like that one."""
_SAVED = "SELECT max(duration) AS longest_s FROM python.checkpoints"
_FEW = 4
_OF_ALL = "probing -t all hang"
"""What asks the ranks that were not asked."""
_UNTOLD = "nothing tells"
"""What a verdict has of a process that had no agent at its end."""
_LAST_STEPS = (
    'probing ENDPOINT query "SELECT step, loss FROM python.steps ORDER BY step DESC LIMIT 10"'
)
_WAITS = re.compile(r"\bwait(?:s|ing) (?!for the device)|holds the interpreter lock \((?!running)")
"""Who runs Python code and so holds that lock need not wait for anything, and who asks a device for
numbers again and again is always found to wait for it."""


def _sureness(confidence: str) -> Certainty:
    return _SURE.get(confidence.partition(":")[0], "likely")


def _hangs(facts: Facts) -> Iterator[Sign]:
    told = list(_told(facts, "hang"))
    yield from told
    if not told:
        _need_progress(facts)


def _slow(facts: Facts) -> Iterator[Sign]:
    """It stands still, and those that are waited for get on."""
    verdict = facts.verdict
    for sign in _told(facts, "slow"):
        longest_s = _longest_pause_s(facts)
        still_s = verdict.still_s if verdict is not None else None
        if still_s is None or still_s > _AS_BEFORE * longest_s:
            yield sign
            continue
        words = f"a pause of {duration(longest_s)} is on record that was over by itself"
        yield replace(sign, certainty="possible", evidence=(words, *sign.evidence))


def _longest_pause_s(facts: Facts) -> float:
    """How long it took once from the beginning of a step to that of the next; 0 if not known.

    That is as long as an evaluation or a checkpoint between them, or in the first of them.
    """
    try:
        steps, saved = facts.steps, facts.rows(_SAVED)
    except NotLookedAt:
        return 0.0
    starts = [row["start_ns"] for row in steps.settled().rows]
    if steps.open is not None:
        starts.append(steps.open["start_ns"])
    pauses = [(end - start) * 1e-9 for start, end in pairwise(starts)]
    return max([*pauses, *(row["longest_s"] or 0.0 for row in saved)], default=0.0)


def _need_progress(facts: Facts) -> None:
    """Make sure that steps tell whether it gets on: of what makes none, nothing is known.

    Raises:
        NotLookedAt: None has ended, or none would be on record, or it was not seen.
    """
    verdict = facts.verdict
    if verdict is None or verdict.has_ended:
        return
    _need_sight(verdict)
    if verdict.confidence == UNRECORDED:
        raise NotLookedAt("its recording is off")
    if len(facts.steps):
        return
    does = next((f": it {cause.what}" for cause in verdict.causes), "")
    raise NotLookedAt(f"no step has ended that would tell whether it gets on{does}")


def _need_sight(verdict: Verdict) -> None:
    """Make sure that the process was seen at all.

    Raises:
        NotLookedAt: It was not.
    """
    if verdict.kind == "process" and not verdict.causes and not verdict.has_ended:
        raise NotLookedAt("it could not be looked at")


def _told(facts: Facts, outcome: str) -> Iterator[Sign]:
    verdict = facts.verdict
    if verdict is None or verdict.has_ended:
        return
    is_early = outcome == "hang" and verdict.may_hang
    if verdict.outcome != outcome and not is_early:
        return
    causes = verdict.causes
    ahead = is_early or (outcome == "hang" and not verdict.is_hang)
    certainty: Certainty = "possible" if ahead else _sureness(verdict.confidence)
    if verdict.is_hang and certainty == "possible":
        certainty = "likely"  # that it stands still is measured: only why is not known
    yield Sign(
        certainty=certainty,
        summary=verdict.headline,
        since_step=_step(facts),
        evidence=tuple(
            dict.fromkeys(
                [
                    *(line for cause in causes for line in _telling(cause)),
                    *((f"confidence {verdict.confidence}",) if verdict.confidence else ()),
                ]
            )
        ),
        weight=1.0,
        fix=_advice(verdict),
        next=_OF_ALL if verdict.confidence == UNASKED else "",
    )


def _telling(cause: Cause) -> list[str]:
    """The lines of evidence that tell the most: what is no frame of the stack comes first."""
    plain = plain_lines(cause)
    return [*plain, *(line for line in cause.evidence if line not in plain)][:_FEW]


def _advice(verdict: Verdict) -> str:
    """The first thing to do that is no look at it: those are in `hang`."""
    return next((step for step in verdict.next_steps if not step.startswith("`probing")), "")


def _waits(facts: Facts) -> Iterator[Sign]:
    """It waits, and nothing on record tells for how long."""
    verdict = facts.verdict
    if verdict is None or verdict.kind != "process" or verdict.outcome != "fine":
        return
    words = [cause.what for cause in verdict.causes if _WAITS.search(cause.what)]
    if not words or _step(facts) is not None or _launches(facts):
        return
    yield Sign(
        certainty="possible",
        summary=verdict.headline,
        evidence=_evidence(verdict),
        weight=1.0,
        fix="Look again in some seconds: the same place is a hang.",
    )


def _launches(facts: Facts) -> bool:
    """Whether its children are ranks, which it is there to wait for."""
    if facts.folder is None:
        return False
    cards = (folder.read_card() for folder in RunDirectory(facts.folder.path.parent).folders())
    return any(
        card is not None and card.rank is not None and card.parent == facts.folder.pid
        for card in cards
    )


def _ended(facts: Facts) -> Iterator[Sign]:
    """The process, or the job, has ended before it should.

    Raises:
        NotLookedAt: How it is, or how it ended, is not known.
    """
    verdict = facts.verdict
    if verdict is None:
        return
    _need_sight(verdict)
    if verdict.has_ended and verdict.ended_well and _UNTOLD in verdict.headline:
        raise NotLookedAt("nothing tells how it ended")
    if not verdict.has_ended or verdict.ended_well or verdict.is_terminated:
        return
    yield Sign(
        certainty=_ended_certainty(facts),
        summary=verdict.headline,
        since_step=_step(facts),
        evidence=_evidence(verdict),
        weight=1.0,
        fix=_advice(verdict),
        next=_look_at_ended(facts),
    )


def _evidence(verdict: Verdict) -> tuple[str, ...]:
    """The first lines of each that it is about, each of them once."""
    return tuple(dict.fromkeys(line for one in verdict.causes for line in one.evidence[:_FEW]))


def _look_at_ended(facts: Facts) -> str:
    """What shows more of an ended process; empty for its last stack, which the rule advises."""
    if has_last_stack(facts.folder):
        return ""
    return _LAST_STEPS if _step(facts) is not None else "probing ENDPOINT hang"


def _ended_certainty(facts: Facts) -> Certainty:
    """That it has ended is certain; what of may be less so, and the headline says so."""
    verdict = facts.verdict
    assert verdict is not None
    is_likely = "Likely: " in verdict.headline or "most likely " in verdict.headline.lower()
    return "likely" if is_likely else "certain"


def _quiet_end(facts: Facts) -> Iterator[Sign]:
    """It has ended in an orderly way with a loss that is not finite."""
    verdict = facts.verdict
    if verdict is None or not (verdict.has_ended and verdict.ended_well) or not len(facts.steps):
        return
    if _UNTOLD in verdict.headline:
        return
    newest = facts.steps.numbers[-1]
    known = [row for row in facts.steps.rows if row["loss_finite"] is not None]
    bad = list(takewhile(lambda row: not row["loss_finite"], reversed(known)))
    if not bad or bad[0]["step"] < newest - 5:
        return
    since = bad[-1]["step"]
    yield Sign(
        certainty="likely",
        summary=f"It ended by itself after step {newest}, in an orderly way, though its loss was"
        f" not finite since step {since}: something in the script took that for an end",
        since_step=since,
        evidence=(verdict.headline,),
        weight=1.0,
    )


def _step(facts: Facts) -> int | None:
    """The step in progress, or the last one on record; None without any."""
    try:
        steps = facts.steps
    except NotLookedAt:
        facts.has_refused = False  # what is found is told without it
        return None
    if steps.open is not None:
        return int(steps.open["step"])
    return steps.numbers[-1] if len(steps) else None


RULES = (
    Rule(
        name="ended",
        group="crashed",
        subject="process",
        symptom="There is no process any more, and its output does not say why.",
        evidence="The crash record, exit words, and counts of the kernel, as `hang` and `backtrace`"
        " tell them.",
        certainty="certain",
        gravity=98,
        fix="",
        next="probing ENDPOINT backtrace",
        look=_ended,
    ),
    Rule(
        name="ended-quietly",
        group="crashed",
        subject="process",
        symptom="It has ended with exit code 0, long before its last step.",
        evidence="An orderly end, and a loss that was not finite in the last steps.",
        certainty="likely",
        gravity=97,
        fix="Find what ends the loop without an error: early stopping that compares with NaN, an"
        " except around the loop.",
        next=_LAST_STEPS,
        look=_quiet_end,
    ),
    Rule(
        name="hang",
        group="stops",
        subject="progress",
        symptom="No step ends; the log is silent.",
        evidence="The verdict of `hang`: two looks at the record a second apart, and the stacks.",
        certainty="certain",
        gravity=100,
        fix="",
        next="probing ENDPOINT hang",
        look=_hangs,
    ),
    Rule(
        name="waits",
        group="stops",
        subject="progress",
        symptom="It was attached to, and has made no step since.",
        evidence="The verdict of `hang` where no step is on record: it waits for something, or"
        " holds the interpreter lock in code that is no Python's.",
        certainty="possible",
        gravity=91,
        fix="Look again in some seconds: the same place is a hang.",
        next="probing ENDPOINT hang",
        look=_waits,
    ),
    Rule(
        name="stands-still",
        group="stops",
        subject="progress",
        symptom="No step ends, though something is being done.",
        evidence=(
            "The verdict of `hang`: longer than a hang takes, and the kernel counts what it reads,"
            " writes or computes. Likely where the record itself does not grow; only possible until"
            " it is twice as long as a checkpoint on record, or as such a pause was before."
        ),
        certainty="certain",
        gravity=92,
        fix="",
        next="probing ENDPOINT hang",
        look=_slow,
    ),
)
