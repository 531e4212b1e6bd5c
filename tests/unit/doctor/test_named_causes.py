"""A finding names the cause and its place, also where the machine leaves little time to look."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import pytest

from probing.diagnosis.doctor import effects
from probing.diagnosis.doctor.facts import Facts
from probing.diagnosis.doctor.findings import Rule, Sign, finding_of
from probing.diagnosis.doctor.not_looked_at import LATE, NotLookedAt
from probing.diagnosis.doctor.rules import RULES
from probing.diagnosis.doctor.turns import judging
from probing.messages.common import Frame, ThreadStack
from probing.postmortem.crashes import EXCEPTION, CrashRecord, describe

from .made import facts, signs, steps
from .records import (
    MIB,
    after,
    compilations,
    gradients,
    in_forward,
    labels,
    memory,
    of_steps,
    trace,
)

pytestmark = pytest.mark.anypython

IN_A_WORKER = """Caught KeyError in DataLoader worker process 1.
Original Traceback (most recent call last):
  File "/v/site-packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)
           ^^^^^^^^^^^^^^^^^^^^
  File "/home/me/train.py", line 20, in __getitem__
    return row["label"]
KeyError: 'label'
"""
IN_A_RANK = """

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/v/lib/python3.11/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
ValueError: bad
which has two lines
"""


def test_a_loss_that_diverged_after_its_rate_was_raised_is_told_with_that() -> None:
    """The step of the rate and the rate of before are named, and not a tenth of the raised one."""
    columns: dict[str, Any] = {
        "lr": after(100, 0.05, 5.0),
        "loss": after(120, lambda s: 0.5 if s < 100 else 2.0 * 1.3 ** (s - 100), math.nan),
        "loss_finite": after(120, True, False),
    }
    (sign,) = signs("loss-not-finite", of_steps(**columns)())
    assert "diverged, after the learning rate was multiplied by 100 at step 100" in sign.summary
    assert "start again with 0.05" in sign.fix
    columns["lr"] = after(100, 0.05, 0.05)
    (sign,) = signs("loss-not-finite", of_steps(**columns)())
    assert "it grew before that" in sign.summary


def test_zero_gradients_of_a_loss_that_is_zero_are_told_as_that() -> None:
    """It is the loss that is nothing, since when it is, and whether its labels count."""
    (sign,) = signs("zero-gradients", gradients(norm=0.0)())
    assert (sign.summary, sign.fix) == ("All gradients of all 2 modules are exactly zero", "")
    since = lambda s: 1.0 if s < 20 else 0.0  # noqa: E731
    (sign,) = signs("zero-gradients", gradients(norm=0.0, step_loss=since)())
    assert (sign.since_step, sign.summary[:30]) == (20, "The loss is exactly 0 in each ")
    assert "margin" in sign.fix
    made = gradients(norm=0.0, step_loss=0.0)()
    none = dataclasses.replace(labels("none"), trained=0, ignored=90)
    made.process._labels = none  # type: ignore[attr-defined]
    (sign,) = signs("zero-gradients", made)
    assert "all 90 labels of the next batch are ignored" in sign.summary
    assert "ignore_index" in sign.fix


@pytest.mark.parametrize(
    ("line", "first"), [("os.fsync(loss)", "checkpoints"), ("time.sleep(0.03)", "slower-since")]
)
def test_checkpoints_are_told_before_the_steps_that_they_make_longer(line: str, first: str) -> None:
    """Where the script is at the line that saves, in steps that got longer by its own code."""
    longer = {"duration": after(120, 0.5, 1.5), "other_s": after(120, 0.4, 1.4), "cpu_s": 0.4}
    of = facts({"steps": steps(400, **longer)}, stacks=in_forward(line))
    of.__dict__["crowd"] = ""
    (sign,) = signs("slower-since", of)
    rules = {rule.name: rule for rule in RULES}
    saves = Sign(certainty="likely", summary="")
    made = [
        finding_of(rules["slower-since"], sign, asked="1"),
        finding_of(rules["checkpoints"], saves, asked="1"),
    ]
    found = sorted(effects.without_effects(made), key=lambda finding: finding.order)
    assert sign.certainty == "likely"
    assert found[0].rule == first


def test_the_module_that_made_steps_longer_is_named() -> None:
    """The innermost one that explains the forward pass's growth, and none where all have grown."""
    slow = of_steps(forward_s=after(120, 0.02, 0.12), duration=after(120, 0.1, 0.2),
                    cpu_s=after(120, 0.1, 0.35))  # fmt: skip

    def made(root: float, mid: float, attn: float) -> Facts:
        """Milliseconds since step 120; before it they took 20, 15 and 10."""
        took = (("", "Net", 20, root), ("mid", "Mid", 15, mid), ("mid.attn", "Attn", 10, attn))
        rows = trace(*(
            {"step": step, "module": name, "class": kind, "depth": depth,
             "duration": (new if step >= 120 else old) / 1000}
            for step in range(200)
            for depth, (name, kind, old, new) in enumerate(took)
        ))  # fmt: skip
        return facts({"steps": slow().process.query("FROM python.steps").to_pylist(),
                      "torch_trace": rows})  # fmt: skip

    (sign,) = signs("slower-since", made(120, 115, 110))
    assert "most of it in the forward pass of mid.attn (Attn)" in sign.summary
    assert sign.evidence[1].endswith("take 10 ms before, 110 ms since in each step")
    for others in (made(120, 15, 10), made(120, 90, 60)):
        (sign,) = signs("slower-since", others)
        assert sign.summary.endswith("most of it in the forward pass")


def test_compilations_that_take_all_the_time_need_few_steps() -> None:
    """Where each step compiles for seconds there are few of them."""
    made = compilations(*range(9))()
    few = [row for row in made.process.query("FROM python.steps").to_pylist() if row["step"] < 9]
    live = made.process.live("compilations").dicts()
    live.append({**live[-1], "start_ns": 10**12, "duration_s": 900.0})  # since the last step
    (sign,) = signs("recompiling", facts({"steps": few}, {"compilations": live}))
    assert "compiled again and again: 6 times in the last 6 steps" in sign.summary


def test_what_takes_time_between_steps_is_counted_in_those_that_are_looked_at() -> None:
    """Those that were written while it was being looked at are of no step on record."""
    rows = [
        {"step": n, "duration": 0.5, "start_ns": 1_000_000_000 * (10 + n), "caller": "t.py:3"}
        for n in range(4, 140, 4)
    ]
    (sign,) = signs("checkpoints", facts({"steps": steps(100), "checkpoints": rows}))
    assert sign.summary.startswith("A checkpoint is written after every 4 steps, at t.py:3")
    spans = [{k: v for k, v in row.items() if k != "caller"} | {"duration": 9.0} for row in rows]
    (sign,) = signs("evaluations", facts({"steps": steps(100), "evaluations": spans}))
    assert "one after every 4 steps" in sign.summary


def test_an_allocation_of_unknown_size_is_told_without_one() -> None:
    """A MemoryError of numpy does not say in bytes what was asked for."""
    row = {"step": 3, "device": "cpu", "phase": "other", "error": "MemoryError"}
    (sign,) = signs("out-of-memory", facts({"ooms": [row]}))
    assert sign.summary == "An allocation on cpu failed in step 3, other: MemoryError"


def test_what_the_record_speaks_for_is_told_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that grows on record is a finding where nobody had the time to watch it."""

    def costly(name: str) -> Rule:
        def look(_: Facts) -> Iterable[Sign]:
            raise NotLookedAt(f"{LATE} 13 s")

        rule = next(rule for rule in RULES if rule.name == "memory-grows")
        on_record = rule.on_record if name == "memory-grows" else None
        return dataclasses.replace(
            rule, name=name, cost_s=8.0 if on_record else 2.0, look=look, on_record=on_record
        )

    monkeypatch.setattr(judging, "RULES", (costly("other"), costly("memory-grows")))
    grows = memory(lambda s: 500 * MIB + 2 * s * MIB)
    judged = judging.Judged(grows.member, grows, [], {})
    judging.judge(judged)
    assert [(rule.name, sign.certainty) for rule, sign in judged.found] == [
        ("memory-grows", "likely")
    ]
    assert set(judged.missed) == {"other"}

    unread = memory(lambda s: 500 * MIB + 2 * s * MIB)
    late = judging.as_it_is(judging.Judged(unread.member, unread, [], {}), "too late")
    assert late.missed.keys() == {"other", "memory-grows"}
    late = judging.as_it_is(judging.Judged(grows.member, grows, [], {}), "too late")
    assert [rule.name for rule, _ in late.found] == ["memory-grows"]

    level = memory(lambda _: 500 * MIB)
    judged = judging.Judged(level.member, level, [], {})
    judging.judge(judged, is_thorough=False)
    assert (judged.found, set(judged.missed)) == ([], {"other"}), "a watch judges by the record"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            IN_A_WORKER,
            "Caught KeyError in DataLoader worker process 1: KeyError: 'label', at train.py:20 in"
            " __getitem__",
        ),
        (
            IN_A_RANK,
            "Process 1 terminated with the following error: ValueError: bad, at spawn.py:90 in"
            " _wrap",
        ),
        ("Traceback (most recent call last): is no traceback", "Traceback (most recent call"),
        ("plain words", "plain words (at fit.py:7 in fit, "),
    ],
)
def test_an_exception_is_told_with_its_place(message: str, told: str) -> None:
    """The innermost line of the program's own, and of a worker's traceback what it ends with."""
    frames = (
        Frame(func="__next__", file="/v/site-packages/torch/loader.py", lineno=3),
        Frame(func="fit", file="/home/me/fit.py", lineno=7),
        Frame(func="<module>", file="/home/me/run.py", lineno=9),
    )
    thread = ThreadStack(thread_id=1, name="MainThread", is_main=True, frames=frames)
    record = CrashRecord(
        when_ns=1, kind=EXCEPTION, type="KeyError", message=message, threads=(thread,)
    )
    words = describe(record)
    assert words.startswith("it ended with an unhandled KeyError: ")
    assert told in words
    assert "(at fit.py:7 in fit, " in words


def test_where_nothing_is_trained_no_gradients_are_waited_for() -> None:
    """A server of answers makes steps without a backward pass, and is asked for no gradients."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("step_backward_s", "step_optimizer_s", "step_optimizer")
    )
    with pytest.raises(NotLookedAt, match="no training is seen: each step is a call of a model"):
        signs("zero-gradients", gradients(norm=0.0, **nothing)())


def test_a_policy_that_collects_samples_is_no_sure_evaluation() -> None:
    """Passes without gradients may be meant in training mode, or where no loader feeds them."""

    def made(*, training: bool, wait_s: float | None = 0.1) -> Facts:
        spans = [
            {"step": 10 * n, "duration": 9.0, "duration_ns": 9_000_000_000, "data_wait_s": wait_s,
             "start_ns": 1_000_000_000 * (11 + 10 * n)} for n in range(10)
        ]  # fmt: skip
        calls = trace({"step": 90, "start_ns": 102_000_000_000, "training": training})
        return facts({"steps": steps(100), "evaluations": spans, "torch_trace": calls})

    (sure,) = signs("evaluations", made(training=False))
    (sign,) = signs("evaluations", made(training=True))
    assert (sure.certainty, sign.certainty) == ("likely", "possible")
    assert "in training mode: a policy that collects samples" in sign.evidence[1]
    (sign,) = signs("evaluations", made(training=False, wait_s=None))
    assert sign.certainty == "possible"
    assert "no loader gives it batches" in sign.evidence[1]
