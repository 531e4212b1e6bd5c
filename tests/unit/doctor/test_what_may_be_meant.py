"""What the rules of the doctor do not take for a fault: experts, busy machines, inference."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest

from probing.cluster.job.membership import Member
from probing.diagnosis.doctor.against import of_one_rank, without_comparison
from probing.diagnosis.doctor.findings import Sign, finding_of
from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from probing.diagnosis.doctor.report import ALL_RULES, Report
from probing.diagnosis.doctor.rules.numbers import rates

from .made import Facts, facts, signs, steps
from .records import after, failing

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize(
    ("holder", "certainty"), [("ModuleList", "possible"), ("Sequential", "likely")]
)
def test_an_expert_without_a_gradient_may_be_meant(holder: str, certainty: str) -> None:
    """A router need not choose all of a list; what is called one after the other has to learn."""
    rows = [
        {"step": step, "model": "model", "parameter": f"experts.{n}.up.weight", "norm": float(n),
         "weight_norm": 1.0, "numel": 9}
        for step in range(57, 60) for n in range(3)
    ]  # fmt: skip
    classes = {"": "Net", "experts": holder, "experts.0": "Expert", "experts.0.up": "Linear"}
    classes |= {"experts.1": "Expert", "experts.2": "Expert"}
    live = [{"model": "model", "module": name, "class": one} for name, one in classes.items()]
    (sign,) = signs(
        "zero-gradients", facts({"steps": steps(60), "gradients": rows}, {"modules": live})
    )
    assert sign.certainty == certainty
    assert "experts.0.up" in sign.summary


def _crowded(**columns: object) -> Facts:
    """Steps on a machine that others use, which makes them longer by chance."""
    of = facts({"steps": steps(200, **columns)})
    of.__dict__["crowd"] = "others use the machine"
    return of


def test_what_the_training_computes_is_not_laid_on_others() -> None:
    """Where others use the machine, the thread's own processor time says what has become longer."""
    chance: Callable[[int], float] = lambda s: 0.3 * ((37 * s) % 29) / 29  # noqa: E731
    grown = {"duration": after(120, 0.1, 0.4), "forward_s": after(120, 0.04, 0.34)}
    longer = _crowded(**grown, cpu_s=after(120, 0.08, 0.3))
    assert [sign.certainty for sign in signs("slower-since", longer)] == ["likely"]
    assert signs("slower-since", _crowded(**grown, cpu_s=0.08)) == []
    waits = _crowded(duration=after(120, 0.1, 0.4), data_wait_s=after(120, 0.0, 0.3), cpu_s=0.08)
    assert [sign.certainty for sign in signs("slower-since", waits)] == ["possible"]
    grows: Callable[[int], float] = lambda s: 0.05 + 0.001 * s  # noqa: E731
    of = _crowded(duration=lambda s: grows(s) + chance(s), cpu_s=grows)
    (sign,) = signs("slower-and-slower", of)
    assert sign.certainty == "possible"
    assert "processor time" in sign.evidence[0]
    assert signs("slower-and-slower", _crowded(duration=lambda s: 0.1 + chance(s))) == []


def _in_turn(*, model: str, optimizer: str) -> Facts:
    """Three trainings of 500 steps, each with ten times the rate of the one before."""
    made = steps(
        1500,
        optimizer="Adam",
        lr=lambda s: (1e-2, 1e-1, 1.0)[s // 500],
        loss=lambda s: 0.05 + 2.2 * math.exp(-(s % 500) / 60) + 0.01 * (s % 3),
        grad_norm=lambda s: 1.0 + 999.0 * (s >= 1490),
    )
    stepped = [
        {"step": s, "class": "Adam", "model": model.format(s // 500 + 1),
         "optimizer": optimizer.format(s // 500 + 1)}
        for s in range(1500)
    ]  # fmt: skip
    return facts({"steps": made, "optimizer_steps": stepped})


@pytest.mark.parametrize("rule", ["rate-raised", "loss-spike"])
def test_a_search_for_the_rate_is_several_trainings(rule: str) -> None:
    """A new model with a new optimizer begins anew; one of both alone goes on with the old."""
    assert signs(rule, _in_turn(model="model {}", optimizer="opt {}")) == []
    for model, optimizer in (("model", "opt {}"), ("model {}", "opt")):
        (sign,) = signs(rule, _in_turn(model=model, optimizer=optimizer))
        assert (sign.certainty, sign.since_step) == ("likely", 500)


def _taken_over(optimizers: tuple[str, str], rate: float) -> Facts:
    """A model that an optimizer trains for 300 steps, and maybe another one from there on."""
    made = steps(
        600,
        optimizer="Adam",
        lr=after(300, 1e-4, rate * 1e-4),
        loss=lambda s: (0.01 if s < 300 else 0.7) + 2.0 * math.exp(-s / 60) + 1e-3 * (s % 3),
    )
    stepped = [
        {"step": s, "class": "Adam", "model": "model", "optimizer": optimizers[s >= 300]}
        for s in range(600)
    ]
    return facts({"steps": made, "optimizer_steps": stepped})


@pytest.mark.parametrize(
    ("optimizers", "rate", "certainty"),
    [
        (("opt", "opt 2"), 1.0, "possible"),
        (("opt", "opt 2"), 10.0, "likely"),
        (("opt", "opt"), 1.0, "likely"),
    ],
)
def test_a_loss_that_jumps_where_another_optimizer_takes_over_may_be_meant(
    optimizers: tuple[str, str], rate: float, certainty: str
) -> None:
    """A model that is trained on with other data has a higher loss at first, and no fault."""
    (sign,) = signs("loss-spike", _taken_over(optimizers, rate))
    assert (sign.certainty, sign.since_step) == (certainty, 300)
    assert ("Another optimizer" in sign.summary) == (certainty == "possible")


def test_the_lower_rate_of_another_optimizer_is_no_cut() -> None:
    """A model is trained on at a rate of its own, which nobody has lowered."""
    (sign,) = signs("rate-cut", _taken_over(("opt", "opt"), 0.01))
    assert sign.since_step == 300
    assert signs("rate-cut", _taken_over(("opt", "opt 2"), 0.01)) == []


@pytest.mark.parametrize(("optimizer", "is_grave"), [("SGD", True), ("Adam", False)])
def test_clipping_is_light_where_the_optimizer_divides_by_that_size(
    optimizer: str, *, is_grave: bool
) -> None:
    """A step of Adam is as large with clipped gradients as without: what is slow is told first."""
    of = facts({"steps": steps(200, grad_norm=20.0, clipped_norm=1.0, optimizer=optimizer)})
    (sign,) = signs("clipping", of)
    assert sign.certainty == "possible"
    (clipping,) = (rule for rule in ALL_RULES if rule.name == "clipping")
    (own_code,) = (rule for rule in ALL_RULES if rule.name == "own-code")
    slow = finding_of(own_code, Sign(certainty="possible", summary="x"), asked="1")
    assert (finding_of(clipping, sign, asked="1").order < slow.order) == is_grave


def test_what_is_wrong_in_the_newest_of_several_trainings_is_found() -> None:
    """Its steps are looked at from its own first one on."""
    of = _in_turn(model="model {}", optimizer="opt {}")
    (sign,) = signs("exploding-gradients", of)
    assert sign.since_step == 1490
    assert rates.newest_training(of).numbers[0] == 1000
    assert rates.newest_training(of).begins_at_start


@pytest.mark.parametrize(("pixels", "certainty"), [(2.0, "possible"), (1.0, "likely")])
def test_larger_images_make_steps_longer(pixels: float, certainty: str) -> None:
    """As many samples as before may be larger ones: progressive resizing."""
    grows = after(200, 0.1, 0.2)
    made = steps(400, samples=64, duration=lambda s: grows(s) * (1 + 0.01 * (s % 5)), cpu_s=grows)
    sizes = after(200, 1e6, 1e6 * pixels)
    parts = [{"step": s, "micro_batch": 0, "elements": int(sizes(s))} for s in range(400)]
    (sign,) = signs("slower-since", facts({"steps": made, "micro_batches": parts}))
    assert sign.certainty == certainty


def _unfrozen(*versions: int | None, **columns: object) -> Facts:
    """Steps that take twice as long since step 120 of 200, and parameters changed so often."""
    made = steps(200, backward_s=after(120, 0.04, 0.14), duration=after(120, 0.1, 0.2),
                 cpu_s=after(120, 0.1, 0.2))  # fmt: skip
    base = {"model": "net", "trainable": True, "optimizers": 1, "optimizer": "opt", **columns}
    rows = [{**base, "parameter": f"{n}.w", "version": each} for n, each in enumerate(versions)]
    return facts({"steps": made}, {"parameters": rows})


@pytest.mark.parametrize(
    ("versions", "certainty"),
    [
        ((202, 81), "possible"),
        ((401, 163), "possible"),  # AdamW
        ((203, 141, 80), "possible"),  # one by one
        ((202, 201), "likely"),
        ((202, 141), "likely"),  # another one, before
        ((401, 200), "likely"),  # without decay
        ((202, None), "likely"),
    ],
)
def test_an_unfrozen_part_makes_steps_longer(versions: tuple[int, ...], certainty: str) -> None:
    """A part that is changed in each step since the first of the longer ones was unfrozen then."""
    (sign,) = signs("slower-since", _unfrozen(*versions))
    assert sign.certainty == certainty
    assert ("1 parameters began to be trained then" in sign.summary) == (certainty == "possible")
    assert sign.fix.startswith("Nothing, if that part") == (certainty == "possible")
    for columns in ({"trainable": False}, {"optimizers": 0}):
        (sign,) = signs("slower-since", _unfrozen(*versions, **columns))
        assert sign.certainty == "likely"


def test_inference_is_no_training_that_fails() -> None:
    """Of a process without an optimizer nothing is said: what calls a model need not train it."""
    for rule, of in (
        ("failing-calls", failing(forward=True, count=0, optimizer=None)),
        ("no-backward", failing(count=0, optimizer=None)),
        ("unused-batches", failing(calls=0, epochs=2, count=0, optimizer=None)),
    ):
        with pytest.raises(NotLookedAt, match="no optimizer"):
            signs(rule, of)


def test_of_a_job_one_rank_is_compared_with_an_earlier_run() -> None:
    """A report of several ranks says that the others were not, and one that came too late, too."""
    report = Report(
        findings=(),
        healthy=(),
        not_looked_at=(),
        about="4 ranks",
        steps=9,
        seconds=1.0,
        processes=4,
    )
    member = Member(rank=2, host="here", pid=7, world_size=4, endpoint="7")
    (missed,) = of_one_rank(report, member, "4711").not_looked_at
    assert missed.rules == ("the other 3 against 4711",)
    assert "rank 2 alone" in missed.why
    alone = dataclasses.replace(report, processes=1)
    assert of_one_rank(alone, member, "4711") is alone
    (missed,) = without_comparison(alone, "4711", "it took too long").not_looked_at
    assert "slower-than-before against 4711" in missed.rules
