"""The verdict on one process that no other is known to belong to.

Rules of this file: pure functions. What a process waits for is told; whether that is a hang is said
only of one whose steps are on record, because only their pace says how long is too long.
"""

from __future__ import annotations

import dataclasses

from ...stacks.thread_waits import LIKELY
from ...stacks.waits import BY_DEBUGGER
from .case import Case
from .evidence import Cause, Kind, RankEvidence, Verdict
from .seen.device_waits import WAITS_FOR_DEVICE
from .seen.doings import is_at_prompt
from .seen.work import how_sure, is_asleep, is_at_work, is_held_up, work_words
from .words.texts import (
    UNRECORDED,
    at,
    call_text,
    name_of,
    ranks_text,
    seconds,
    sentence,
    unrecorded_words,
)


def judge_process(evidence: RankEvidence | None) -> Verdict:
    """Say what a single process does, and whether it hangs."""
    if evidence is None:
        return Verdict(kind="unknown", is_hang=False, headline="No process was found.")
    name = name_of(evidence)
    if evidence.state in {"unreachable", "missing"}:
        return _not_seen(name, evidence)
    if not evidence.is_alive:
        return _ended(name, evidence)
    case = Case.of([_as_rank(evidence)])
    still_s, doing = evidence.still_s, doing_words(evidence)
    if evidence.state == "stopped" and not evidence.is_debugged:
        return _verdict(evidence, case, f"{name} {doing}.", is_hang=True, kind="stopped")
    if evidence.doing is not None and evidence.doing.is_deadlock and not evidence.moved:
        return _verdict(evidence, case, f"{name} {doing}.", is_hang=True)
    if evidence.is_paused:
        text = f"{name} {doing}. {unrecorded_words('it')}"
        found = _verdict(evidence, case, text, is_hang=False)
        return dataclasses.replace(found, still_s=None, confidence=UNRECORDED)
    if (well := _well(evidence, case)) is not None:
        return well
    if evidence.step is None or still_s is None:
        text = f"{name} {doing}. No training step of it is on record to tell whether that is long."
        return _verdict(evidence, case, text, is_hang=False)
    is_hang = still_s >= case.threshold_s
    if is_hang and not is_held_up(evidence) and (is_at_work(evidence) or is_asleep(evidence)):
        text = f"{name} {work_words(evidence)}."
        found = _verdict(evidence, case, text, is_hang=False, kind="slow")
        return dataclasses.replace(found, confidence=how_sure([evidence]))
    since = f"has not moved for {seconds(still_s)}" + ("" if is_hang else " so far")
    lost = f"; {evidence.ending}" if evidence.ending else ""  # a thread, as it is alive
    text = f"{name} {since}, in step {evidence.step}: it {doing}{lost}."
    is_held = is_hang and evidence.doing is not None and evidence.doing.holder is not None
    return _verdict(evidence, case, text, is_hang=is_hang, kind="held" if is_held else "process")


def _well(evidence: RankEvidence, case: Case) -> Verdict | None:
    """What is said of a process that gets on, or that nobody asks for anything."""
    doing, still_s = evidence.doing, evidence.still_s
    if is_at_prompt(doing) and not evidence.moved:
        text = f"{doing_words(evidence)}: no hang"
    elif evidence.moved or (still_s is not None and still_s < case.calm_s):
        at = f" in step {evidence.step}" if evidence.step is not None else ""
        text = f"is making progress{at}: no hang"
    elif doing is not None and doing.kind == "looked_at":
        since = "" if still_s is None else f", for {seconds(still_s)} so far"
        text = f"{doing_words(evidence)}{since}: no hang"
    elif doing is not None and doing.kind == "idle" and evidence.ending is None:
        text = f"{doing_words(evidence)}: nothing of it is seen to train, which is no hang"
    else:
        return None
    return Verdict(
        kind="healthy",
        is_hang=False,
        headline=f"{name_of(evidence)} {text}.",
        notes=tuple(f"Beside that there is {text}." for text in evidence.deadlocks),
    )


def _ended(name: str, evidence: RankEvidence) -> Verdict:
    """What is said of a process that is no more."""
    ending = evidence.ending or "how is not on record"
    return Verdict(
        kind="ended",
        is_hang=False,
        has_ended=True,
        ended_well=evidence.ended_well,
        is_terminated=evidence.is_terminated,
        headline=f"{name} has ended: {ending}.",
    )


def _not_seen(name: str, evidence: RankEvidence) -> Verdict:
    """What is said of a process that nothing could be seen of: not that it has ended."""
    why = evidence.notes[0] if evidence.notes else ""
    is_told = str(evidence.pid) in why
    text = why if is_told else f"{name} could not be looked at{f': {why}' if why else ''}"
    return Verdict(
        kind="process",
        is_hang=False,
        headline=sentence(text),
    )


def judge_unseen(case: Case) -> Verdict | None:
    """Say that no rank of a job could be looked at, where that is so."""
    if any(evidence.state != "unreachable" for evidence in case.ranks.values()):
        return None
    notes = {note for evidence in case.ranks.values() for note in evidence.notes}
    why = f": {min(notes).rstrip('.')}" if len(notes) == 1 else ""
    text = f"{ranks_text(case.ranks)} could not be looked at{why}"
    return Verdict(kind="process", is_hang=False, headline=sentence(text))


def doing_words(evidence: RankEvidence) -> str:
    """What a rank does and where, in words that fit behind its name."""
    doing, is_stopped = evidence.doing, evidence.state == "stopped"
    if is_stopped:
        words = f"is {BY_DEBUGGER if evidence.is_debugged else 'stopped by a signal'}"
    else:
        words = doing.words if doing else "is somewhere that could not be told"
    if doing and doing.where and not doing.is_deadlock:
        words += f", at {doing.where}"
    if evidence.module is not None and not is_stopped and not is_at_prompt(doing):
        words += f", inside module {evidence.module}"
    return words


def _verdict(
    evidence: RankEvidence, case: Case, headline: str, *, is_hang: bool, kind: Kind = "process"
) -> Verdict:
    return Verdict(
        kind=kind,
        is_hang=is_hang,
        headline=headline,
        causes=(
            Cause(
                rank=evidence.rank,
                pid=evidence.pid,
                host=evidence.host,
                what=doing_words(evidence),
                endpoint=evidence.address,
                evidence=(
                    *(evidence.doing.stack if evidence.doing else ()),
                    *evidence.others,
                    *(
                        f"{call_text(call)}{at(call)} has not ended for {seconds(call.age_s)}"
                        for call in evidence.calls
                        if call.is_open
                    ),
                    *((evidence.device,) if evidence.device else ()),
                    *evidence.device_errors,
                ),
            ),
        ),
        still_s=evidence.still_s,
        threshold_s=case.threshold_s,
        confidence=_confidence(evidence),
    )


def _confidence(evidence: RankEvidence) -> str:
    if evidence.doing is None:
        return "low: it has no stack"
    if evidence.doing.is_deadlock and LIKELY in evidence.doing.words:
        return "medium: who has which lock is told by the code that its threads are in"
    if WAITS_FOR_DEVICE in evidence.doing.words:
        return "medium: its stack was read, and nothing tells whether the device works or hangs"
    if evidence.doing.holder == "sleep":
        return "medium: its stack was read, and nothing tells for how long that thread sleeps yet"
    return "high: its stack was read"


def _as_rank(evidence: RankEvidence) -> RankEvidence:
    return evidence if evidence.rank is not None else dataclasses.replace(evidence, rank=0)
