"""What the doctor says of who was asked to end by a SIGTERM."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from probing.cluster.job.membership import Member
from probing.diagnosis.doctor.findings import Sign
from probing.diagnosis.hang.evidence import RankEvidence, Verdict
from probing.diagnosis.hang.judging import judge as verdict_of
from probing.diagnosis.hang.seen.collection import Stacks, evidence_of, unasked
from probing.diagnosis.hang.seen.own_ends import end_of, told_end
from probing.postmortem.endings import Ending, ending_of
from probing.postmortem.terminations import ASKED, Termination, termination_of
from probing.rundir.folders import ProcessFolder
from tests.harness.cards import card_of

from .made import FINE, facts, signs, steps

pytestmark = pytest.mark.anypython

_S = 10**9
ENDED = dataclasses.replace(FINE, kind="ended", has_ended=True, is_terminated=True)


@pytest.fixture
def folder(tmp_path: Path) -> ProcessFolder:
    """What a process has left that is no more, and of which nothing else is known."""
    return ProcessFolder(path=tmp_path, pid=2**22 + 1, start_time=1)


def asked_at(folder: ProcessFolder, when_ns: int, words: bytes = b"77 d slurmstepd\n") -> None:
    """It got a SIGTERM."""
    folder.terminated.write_bytes(words)
    os.utime(folder.terminated, ns=(when_ns, when_ns))


def found_in(folder: ProcessFolder, rows: list[dict[str, object]], verdict: Verdict) -> list[Sign]:
    """What the rule says, and that the rule about crashes says nothing."""
    of = facts({"steps": rows}, verdict=verdict, is_alive=False)
    of.process.folder = folder  # type: ignore[misc]
    assert signs("ended", of) == []
    return signs("terminated", of)


def test_a_sigterm_is_told_with_its_sender_and_as_no_crash(folder: ProcessFolder) -> None:
    """Certain, with the step; that it was in this for long only if it was."""
    rows = steps(40)
    open_ns = rows[-1]["start_ns"] + _S
    rows.append({"step": 40, "start_ns": open_ns, "duration": None})
    for after_s, is_long in ((1, False), (900, True)):
        asked_at(folder, open_ns + after_s * _S)
        asked = termination_of(folder, None)
        assert asked is not None
        assert asked.sentence.startswith(f"{ASKED} of process 77 (slurmstepd) at ")
        headline = f"Process 1 has ended: it was {asked.sentence[7:]}"
        (sign,) = found_in(folder, rows, dataclasses.replace(ENDED, headline=headline))
        assert (sign.certainty, sign.since_step, sign.summary) == ("certain", 40, headline)
        assert ["it may have hung" in line for line in sign.evidence] == [True] * is_long


@pytest.mark.parametrize(
    "words",
    [
        "it was asked to end by a SIGTERM at 2026-12-01 12:00:00",
        "it ended without a word. Its exit status, which its parent has not taken yet, is signal"
        " SIGTERM",
        "it left by itself with exit code 143, by sys.exit(143)",
    ],
)
def test_an_exit_status_tells_it_too(words: str, folder: ProcessFolder) -> None:
    """Where the sender is not known, and of a process without a step."""
    verdict = dataclasses.replace(ENDED, headline=f"Process 1 has ended: {words}.")
    (sign,) = found_in(folder, [], verdict)
    assert (sign.since_step, sign.evidence) == (None, ())


@pytest.mark.parametrize(
    "words", ["it left by itself with exit code 1430", "it ended with RuntimeError: no SIGTERM"]
)
def test_other_ends_are_told_as_such(words: str) -> None:
    """An error that has the word in it, or a similar code."""
    headline = f"Process 1 has ended: {words}."
    verdict = dataclasses.replace(ENDED, is_terminated=False, headline=headline)
    of = facts({"steps": steps(40)}, verdict=verdict, is_alive=False)
    assert signs("terminated", of) == []
    assert [sign.summary for sign in signs("ended", of)] == [verdict.headline]


def test_the_rule_is_told_of_it_whatever_the_words(folder: ProcessFolder) -> None:
    """From what tells of the end to the verdict it goes as a fact."""
    asked_at(folder, _S, b"0 h\n")
    asked = termination_of(folder, None)
    assert asked is not None
    ending = Ending(certain=(asked.sentence,), reason="terminated", by_sigterm=True)
    end = told_end(ending, None)
    assert not end.is_own
    evidence = RankEvidence(
        rank=None, host="h", pid=7, endpoint="7", state="dead", ending=end.words,
        ended_ns=end.ended_ns, is_terminated=end.is_terminated, way=end.way,
    )  # fmt: skip
    (sign,) = found_in(folder, [], verdict_of([evidence]))
    assert "asked to end by a SIGTERM at 1970" in sign.summary


@pytest.mark.parametrize(("pid", "name", "who"), [(77, "a b", "a b"), (77, "", "77"), (0, "", "")])
def test_who_has_asked_is_the_same_on_every_machine(pid: int, name: str, who: str) -> None:
    """The name before the pid, which is another one on each machine; empty if unknown."""
    asked = Termination(_S, pid, is_handled=True, name=name)
    assert asked.who == who
    ending = Ending(certain=(asked.sentence,), reason="terminated", asked_by=asked.who)
    assert told_end(ending, None).asked_by == who


def test_an_exit_code_alone_is_an_end_of_its_own() -> None:
    """Who calls `sys.exit(143)` was asked by nobody; whom the signal has ended was."""
    code = Ending(certain=("It left by itself with exit code 143.",), reason="terminated")
    signal = Ending(certain=("It ended.",), reason="terminated", by_sigterm=True)
    assert [told_end(one, None).is_own for one in (code, signal)] == [True, False]
    assert told_end(code, None).is_terminated


def test_a_handler_that_ends_in_an_orderly_way_was_asked_all_the_same(
    folder: ProcessFolder,
) -> None:
    """As one that writes a checkpoint and leaves with exit code 0, before all steps are done."""
    folder.write_card(card_of(folder.pid, folder.start_time))
    alone = ending_of(folder, ())
    assert alone is not None
    assert (alone.reason, alone.asked_by) == ("orderly", None)
    asked_at(folder, _S, b"77 h bash\n")
    ending = ending_of(folder, ())
    assert ending is not None
    assert (ending.reason, ending.asked_by) == ("terminated", "bash")
    assert (ending.way, ending.brief) == ("orderly", "SIGTERM, orderly")
    end = end_of(folder)
    evidence = RankEvidence(
        rank=None, host="h", pid=7, endpoint="7", state="dead", ending=end.words,
        ended_ns=end.ended_ns, is_terminated=end.is_terminated, way=end.way,
    )  # fmt: skip
    verdict = verdict_of([evidence])
    assert verdict.ended_well
    (sign,) = found_in(folder, [], verdict)
    assert "SIGTERM of process 77 (bash) at 1970" in sign.summary
    assert "ended in an orderly way" in sign.summary


@pytest.mark.parametrize("stacks", [None, Stacks(state="unreachable", trace=None)])
def test_who_has_ended_is_no_hang_though_there_was_no_time_for_its_stack(
    tmp_path: Path, stacks: Stacks | None
) -> None:
    """As on a machine with far too much to do: its record looks like that of one that is silent."""
    number = 2**22 + 1
    folder = ProcessFolder(tmp_path / f"{number}-1", number, 1)
    folder.path.mkdir()
    folder.write_card(card_of(number, 1))
    asked_at(folder, _S, b"77 h bash\n")
    member = Member(rank=None, host="here", pid=number, world_size=None, endpoint=str(folder.path))
    of = facts({"steps": steps(3)}, is_alive=False)
    of.process.folder = folder  # type: ignore[misc]
    for found in (evidence_of(of.process, member, None, stacks), unasked(member, "too late")):
        assert (found.state, found.is_terminated) == ("dead", True)
        verdict = verdict_of([found])
        assert (verdict.is_hang, verdict.has_ended, verdict.is_terminated) == (False, True, True)
