"""What is said of two runs, from records made by hand."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probing.cli.render.ranks.runs import (
    markdown_comparison,
    plain_comparison,
    render_comparison,
)
from probing.diagnosis.doctor.against import AGAINST_RULES, findings_of, with_comparison
from probing.diagnosis.doctor.report import ALL_RULES, Report
from probing.diagnosis.runs.commits import not_committed
from probing.diagnosis.runs.comparison import RunComparison, compare_runs
from probing.diagnosis.runs.interval import compare
from probing.diagnosis.runs.reading import script_of
from probing.diagnosis.runs.record import Run, read_run
from probing.diagnosis.runs.speed import is_told

from .made import MadeProcess, steps

pytestmark = pytest.mark.anypython

Rows = Sequence[Mapping[str, Any]]
MIB = 1 << 20
BASE = {
    ("argument", "--lr"): "0.1",
    ("code", "train.py"): "a" * 40,
    ("configuration", "loader 0.num_workers"): "4",
    ("configuration", "model.dtype"): "float32",
    ("configuration", "optimizer.lr"): "0.1",
    ("torch", "num_threads"): "4",
    ("environment", "OMP_NUM_THREADS"): "4",
    ("version", "torch"): "2.13",
    ("seed", "torch.initial_seed"): "1",
    ("place", "host"): "here",
    ("place", "code root"): "/one",
}


def noisy(seed: int, level: float = 0.1) -> Callable[[int], float]:
    """A level with noise, the same for the same seed, and an outlier now and then."""
    drawn = np.random.default_rng(seed)
    noise = np.exp(0.05 * drawn.standard_normal(4000))
    return lambda step: level * noise[step] * (10 if step % 97 == 5 else 1)


def run(
    name: str,
    count: int = 200,
    *,
    environment: Mapping[tuple[str, str], str | None] | None = None,
    tables: Mapping[str, Rows] | None = None,
    secrets: Sequence[str] = (),
    **columns: Any,
) -> Run:
    """A run with such a record."""
    made = dict(columns)
    made.setdefault("duration", noisy(len(name)))
    made.setdefault("samples", 8)
    made.setdefault("allocated_bytes", 400 * MIB)
    rows = [{**row, "duration_ns": round(row["duration"] * 1e9)} for row in steps(count, **made)]
    process = MadeProcess({"steps": rows, **(tables or {})}, {})
    kept = [
        {
            "kind": kind,
            "name": key,
            "value": value,
            "is_secret": key in secrets,
            "fingerprint": value,
        }
        for (kind, key), value in (BASE if environment is None else environment).items()
    ]
    return read_run(f"run {name}", lambda sql: process.query(sql).to_pylist(), kept)


def compared(before: Run, after: Run) -> RunComparison:
    """All that differs, of which one variable is a secret."""
    return compare_runs(before, after, frozenset({("environment", "NCCL_KEY")}))


SERIES = {
    "even": lambda drawn, count: np.exp(0.1 * drawn.standard_normal(count)),
    "heavy tails": lambda drawn, count: 1 + 0.05 * np.abs(drawn.standard_t(1.5, count)),
    "every second": lambda drawn, count: (
        np.where(np.arange(count) % 2, 1.6, 0.4) * np.exp(0.05 * drawn.standard_normal(count))
    ),
}


@pytest.mark.parametrize("kind", SERIES)
@pytest.mark.parametrize("count", [40, 200, 1000])
def test_the_same_series_is_not_told(kind: str, count: int) -> None:
    """Of pairs that differ by chance alone none is told, one that is slower by half always."""
    drawn = np.random.default_rng(count)
    for _ in range(20):
        one, two, slow = (SERIES[kind](drawn, count) for _ in range(3))
        assert not is_told(compare(one, two))
        assert is_told(compare(one, 1.5 * slow))


def test_a_slow_spell_is_not_the_run() -> None:
    """A fifth of one run that took half as long again is no difference between the runs."""
    drawn = np.random.default_rng(5)
    one, two = (np.exp(0.05 * drawn.standard_normal(400)) for _ in range(2))
    two[100:180] *= 1.5
    assert not is_told(compare(one, two))


def test_identical_runs_have_nothing() -> None:
    """Two runs of the same set-up that differ by noise alone have no difference and no finding."""
    found = compared(run("1"), run("22"))
    assert found.effects == ()
    assert found.differences == ()
    assert not any(measure.is_different for measure in found.measures)
    assert found.losses is not None
    assert found.losses.same_until is None
    text = render_comparison(found, (), width=100, color=False)
    assert "Neither is slower" in text
    assert "set up alike" in text
    report = with_comparison(EMPTY, found, ("1", "22"))
    assert report.findings == ()
    assert "the same as run 1" in report.healthy


def test_a_process_attached_to_twice_is_compared() -> None:
    """Its steps count from 1 again: those since then are meant, and of before there is none."""
    twice = [
        {**row, "start_ns": row["start_ns"] + at * 10**12, "lr": 0.2 - at / 10}
        for at, count in enumerate((200, 120))
        for row in steps(count, duration=noisy(2), samples=8)
    ]
    tables = {"steps": [{**row, "duration_ns": round(row["duration"] * 1e9)} for row in twice]}
    found = compared(run("1", lr=0.1), run("22", tables=tables))
    assert found.steps == (115, 115)
    assert found.differences == ()


EMPTY = Report(findings=(), healthy=(), not_looked_at=(), about="", steps=0, seconds=0.0)


def _slower(phase: str, by: float = 2.0) -> dict[str, Any]:
    """Steps that take longer in one phase."""
    return {"duration": noisy(3, 0.1 + 0.04 * (by - 1)), f"{phase}_s": 0.04 * by}


PLANTED: list[tuple[tuple[str, str], str, dict[str, Any], str]] = [
    (("configuration", "loader 0.num_workers"), "0",
     {"duration": noisy(3, 0.2), "data_wait_s": 0.1}, "num_workers of loader 0 is 0, and was 4"),
    (("configuration", "model.dtype"), "float64", _slower("forward"), "dtype of model is float64"),
    (("torch", "num_threads"), "1", _slower("backward"), "torch's num_threads is 1, and was 4"),
    (("torch", "float32_matmul_precision"), "highest", _slower("forward"), "float32_matmul"),
    (("code", "train.py"), "b" * 40, _slower("forward"), "train.py has changed"),
    (("argument", "--nap"), "0.1", _slower("forward"), "argument --nap is 0.1, and was not given"),
    (("argument", "argument 1"), "9", _slower("forward"), ": argument 1 is 9, and was not given"),
    (("environment", "OMP_NUM_THREADS"), "1", _slower("forward"), "OMP_NUM_THREADS is 1"),
    (("version", "torch"), "2.12", _slower("optimizer"), "version of torch is 2.12"),
    (("place", "host"), "there", _slower("forward"), "host is there, and was here"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "columns", "words"), PLANTED, ids=[" ".join(case[0]) for case in PLANTED]
)
def test_what_was_changed_is_named_for_what_is_slower(
    key: tuple[str, str], value: str, columns: dict[str, Any], words: str
) -> None:
    """The change is the first explanation, whatever else differs that cannot be it."""
    base = BASE | ({key: "high"} if key not in BASE and key[0] == "torch" else {})
    other = {("seed", "torch.initial_seed"): "2", ("place", "code root"): "/two", key: value}
    found = compared(run("1", environment=base), run("2", environment=base | other, **columns))
    (effect,) = (one for one in found.effects if one.kind == "speed")
    assert effect.certainty == "likely"
    assert words in effect.summary
    assert effect.is_worse
    assert "code root" not in "".join(one.words for one in found.differences)
    (finding,) = (f for f in findings_of(found, ("/a/b 1", "2")) if f.rule == "slower-than-before")
    assert finding.next == "probing diff '/a/b 1' 2"


def test_how_long_it_trains_explains_no_speed() -> None:
    """Of arguments, the one that can is named; where several can, no single one is."""
    one = run("1", environment=BASE | {("argument", "--steps"): "200"})
    more = {("argument", "--steps"): "900", ("argument", "--nap"): "1"}
    (effect,) = compared(one, run("2", environment=BASE | more, **_slower("forward"))).effects
    assert effect.summary.endswith(": argument --nap is 1, and was not given")
    more |= {("code", "train.py"): "b" * 40}
    (effect,) = compared(one, run("2", environment=BASE | more, **_slower("forward"))).effects
    assert effect.summary.endswith(
        ": perhaps argument --nap is 1, and was not given, or train.py has changed"
    )


def test_a_learning_rate_and_a_seed_explain_a_loss_but_no_speed() -> None:
    """What cannot change the time is not said to, even where nothing else differs."""
    key = ("configuration", "optimizer.lr")
    high = run("2", environment=BASE | {key: "1.0"}, lr=1.0, loss=lambda step: 2.4 - 0.001 * step)
    found = compared(run("1", lr=0.1), high)
    (effect,) = found.effects
    assert (effect.kind, effect.certainty, effect.is_worse) == ("loss", "likely", True)
    assert "lr of optimizer is 1.0, and was 0.1" in effect.summary
    slow = compared(run("1"), run("2", environment=BASE | {key: "1.0"}, **_slower("forward")))
    (speed,) = (one for one in slow.effects if one.kind == "speed")
    assert "nothing that is on record of their set-up explains it" in speed.summary


def test_what_is_faster_is_told_but_is_no_fault() -> None:
    """It is in the comparison, and not among what the doctor finds wrong."""
    found = compared(run("1", **_slower("forward")), run("2"))
    (effect,) = found.effects
    assert not effect.is_worse
    assert "0.7" in effect.summary
    assert with_comparison(EMPTY, found, ("1", "2")).findings == ()


def test_a_larger_batch_is_more_work_and_no_fault() -> None:
    """A step of twice the samples that takes twice as long is as fast for each."""
    twice = run("2", samples=16, **_slower("forward", 3.5))
    (effect,) = compared(run("1"), twice).effects
    assert effect.certainty == "possible"
    assert "samples in a step is 16, and was 8" in effect.summary
    assert any("times as long for each" in words for words in effect.evidence)


def test_a_larger_batch_makes_no_step_faster() -> None:
    """A size that would change the time the other way does not explain it."""
    one = run("1", **_slower("forward"))
    (effect,) = [e for e in compared(one, run("2", samples=16)).effects if e.kind == "speed"]
    assert not effect.is_worse
    assert "nothing that is on record of their set-up explains it" in effect.summary


def test_another_script_may_have_done_anything() -> None:
    """It is told before what else explains an effect, and with it."""
    one = dataclasses.replace(run("1"), command="train.py --lr 1")
    more = BASE | {("configuration", "loader 0.num_workers"): "0"}
    two = dataclasses.replace(
        run("2", environment=more, **_slower("data_wait")), command="other.py --lr 1"
    )
    found = compared(one, two)
    first = found.differences[0]
    assert (first.kind, first.name, first.after) == ("code", "script", "other.py")
    (effect,) = found.effects
    assert effect.summary.endswith(
        ": perhaps the script is other.py, and was train.py, or num_workers of loader 0 is 0, and"
        " was 4"
    )
    same = dataclasses.replace(two, command="train.py --lr 2")
    assert all(d.name != "script" for d in compared(one, same).differences)


def test_others_on_the_processors_are_told_from_the_training() -> None:
    """A run that got less of a processor and was preempted more is not called slower itself."""
    crowded = run(
        "2", duration=noisy(4, 0.2), forward_s=0.08, backward_s=0.08, optimizer_s=0.04,
        involuntary_switches=30,
    )  # fmt: skip
    (effect,) = compared(run("1"), crowded).effects
    assert effect.certainty == "possible"
    assert "others used the processors of run 2" in effect.summary


def test_a_module_that_sleeps_is_no_crowd() -> None:
    """Where the rest of a step takes as long as it did, it is not for want of a processor."""
    slow = run("2", duration=noisy(4, 0.2), forward_s=0.14, involuntary_switches=30)
    (effect,) = compared(run("1"), slow).effects
    assert effect.certainty == "likely"
    assert "others used" not in effect.summary


def test_checkpoints_evaluations_and_questions_are_left_out() -> None:
    """Steps that hold something else than training are not compared."""
    slow = lambda step: 0.5 if step % 4 == 0 else 0.1  # noqa: E731
    spans = [
        {"start_ns": 1_000_000_000 * (10 + step) + 1, "duration": 0.001, "duration_ns": 1_000_000}
        for step in range(0, 200, 4)
    ]
    rows = [{"step": step, **span} for step, span in zip(range(0, 200, 4), spans, strict=True)]
    for table in ({"checkpoints": rows}, {"evaluations": rows}, {"evals": spans}):
        found = run("2", duration=slow, tables=table)
        assert {row["duration"] for row in found.settled} == {0.1}
        assert compared(run("1"), found).effects == ()


def test_the_first_steps_are_left_out_where_they_are_on_record() -> None:
    """A training loads libraries and compiles in them."""
    assert run("1").settled[0]["step"] == 5


def test_too_few_steps_are_not_compared() -> None:
    """It says so, and calls nothing the same."""
    found = compared(run("1"), run("2", count=12, duration=1.0))
    assert found.effects == ()
    assert dict(found.not_looked_at).keys() >= {"speed", "loss"}
    report = with_comparison(EMPTY, found, ("1", "2"))
    assert report.healthy == ()
    assert any("speed against run 1" in missed.rules for missed in report.not_looked_at)


@pytest.mark.parametrize(("ratio", "certainty"), [(1.05, None), (1.2, "possible"), (2.0, "likely")])
def test_memory_is_compared_at_the_same_steps(ratio: float, certainty: str | None) -> None:
    """Memory that grows with the steps is no difference between runs of unlike length."""

    def grown(by: float) -> Callable[[int], int]:
        return lambda step: round(by * (400 + step) * MIB)

    one = run("1", count=400, allocated_bytes=grown(1.0))
    two = run("2", count=100, allocated_bytes=grown(ratio))
    found = [effect for effect in compared(one, two).effects if effect.kind == "memory"]
    assert [effect.certainty for effect in found] == ([certainty] if certainty else [])


def test_losses_are_the_same_up_to_a_step() -> None:
    """The first step with another loss is told."""
    same = steps(200)
    losses = [row["loss"] for row in same]
    found = compared(run("1"), run("2", loss=lambda s: losses[s] + (1e-9 if s >= 57 else 0.0)))
    assert found.losses is not None
    assert found.losses.same_until == 57
    assert found.effects == ()


def test_a_module_is_named() -> None:
    """Of the modules of a phase, the innermost that most of the difference is in."""

    def trace(seconds: float) -> Rows:
        modules = (("Net", 0, 0.01 + seconds), ("body", 1, seconds), ("body.0", 2, seconds),
                   ("head", 1, 0.002))  # fmt: skip
        return [
            {"step": step, "module": module, "stage": "forward", "duration": s, "depth": depth,
             "duration_ns": round(s * 1e9)}
            for step in range(5, 200) for module, depth, s in modules
        ]  # fmt: skip

    one = run("1", tables={"torch_trace": trace(0.02)})
    two = run("2", tables={"torch_trace": trace(0.06)}, **_slower("forward"))
    found = compared(one, two)
    assert "in module body.0 (3.0 times)" in found.effects[0].summary
    assert found.modules[0].name in {"Net forward", "body forward", "body.0 forward"}


def test_modules_of_two_models_are_compared_apart() -> None:
    """The model stands behind a name that several have; one made anew in each step is one."""

    def trace(seconds: float) -> dict[str, Rows]:
        """A generator that takes so long, a discriminator, and a loss of its own for each step."""
        return {
            "torch_trace": [
                {"step": step, "module": module, "stage": "forward", "duration": s, "depth": 1,
                 "duration_ns": round(s * 1e9), "root": root, "model": model}
                for step in range(5, 200)
                for module, root, model, s in (
                    ("net.0", "Gen", "g", seconds), ("net.0", "Disc", "d", 0.01),
                    ("Loss", "Loss", f"Loss {step}", 0.001))
            ]
        }  # fmt: skip

    one = run("1", tables=trace(0.02))
    found = compared(one, run("2", tables=trace(0.06), **_slower("forward")))
    assert "in module net.0 of g (3.0 times)" in found.effects[0].summary
    assert {measure.name for measure in found.modules} == {
        "net.0 of g forward", "net.0 of d forward", "Loss forward"
    }  # fmt: skip


@pytest.mark.parametrize("model", ["Net 2", "d"])
def test_a_second_model_is_not_taken_for_a_part_of_the_first(model: str) -> None:
    """Nor for one made anew where it lasts and has no name but its class; one run alone has it."""

    def trace(*models: tuple[str, float]) -> dict[str, Rows]:
        return {
            "torch_trace": [
                {"step": step, "module": "net.0", "stage": "forward", "duration": s, "depth": 1,
                 "duration_ns": round(s * 1e9), "root": "Net", "model": name}
                for step in range(5, 200) for name, s in models
            ]
        }  # fmt: skip

    one = run("1", tables=trace(("Net", 0.02)))
    for first, second in [(("Net", 0.02), (model, 0.05)), ((model, 0.05), ("Net", 0.02))]:
        found = compared(one, run("2", tables=trace(first, second)))
        (measure,) = found.modules
        assert (measure.name, measure.ratio) == ("net.0 of Net forward", 1.0)


def test_nothing_is_said_of_what_was_not_compared() -> None:
    """Neither is as fast without steps of one; none is set up alike where nothing is kept."""
    found = compared(run("1", count=0, environment={}), run("2"))
    assert {"speed", "set-up"} <= {what for what, _ in found.not_looked_at}
    for text in (
        render_comparison(found, (), width=100, color=False),
        markdown_comparison(found, ()),
    ):
        assert "beyond chance" not in text or "slower" not in text
        assert "set up alike" not in text


def test_a_secret_is_not_shown() -> None:
    """That it differs is told in every format, and neither value."""
    key = ("environment", "NCCL_KEY")
    one, two = (
        run(name, environment=BASE | {key: print_}, secrets=("NCCL_KEY",))
        for name, print_ in (("1", "aaaa"), ("2", "bbbb"))
    )
    found = compared(one, two)
    assert [one.name for one in found.differences] == ["NCCL_KEY"]
    text = render_comparison(found, (), width=100, color=False)
    for told in (text, markdown_comparison(found, ()), str(plain_comparison(found))):
        assert "NCCL_KEY" in told
        assert "aaaa" not in told
        assert "bbbb" not in told


def test_what_one_run_alone_tells_is_no_difference() -> None:
    """A loader that was not met, a library that was not loaded, a file that is not known."""
    more = {("configuration", "loader 1.num_workers"): "2", ("version", "scipy"): "1.0",
            ("code", "train.py"): None, ("code", "other.py"): "c" * 40}  # fmt: skip
    assert compared(run("1"), run("2", environment=BASE | more)).differences == ()
    assert compared(run("1"), run("2", environment={})).differences == ()


def test_what_follows_from_another_difference_is_told_once() -> None:
    """Batches of an epoch and samples of a step follow from the size of a batch."""
    size, count = ("configuration", "loader 0.batch_size"), ("configuration", "loader 0.batches")
    one = run("1", environment=BASE | {size: "8", count: "40"})
    two = run("2", environment=BASE | {size: "16", count: "20"}, samples=16)
    found = compared(one, two)
    assert [difference.name for difference in found.differences] == ["loader 0.batch_size"]


def test_a_set_up_that_explains_nothing_is_possible() -> None:
    """The doctor tells it last, for it may be meant."""
    found = compared(run("1"), run("2", environment=BASE | {("argument", "--lr"): "0.2"}))
    (finding,) = with_comparison(EMPTY, found, ("1", "2")).findings
    assert (finding.rule, finding.certainty) == ("other-set-up", "possible")
    assert "argument --lr is 0.2, and was 0.1" in finding.summary


def test_what_is_not_committed_is_told_by_git(tmp_path: Path) -> None:
    """By what the files held as they were loaded, whatever became of them since."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *who, "-C", str(tmp_path), *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "train.py").write_text("x = 1\n")
    (tmp_path / "model.py").write_text("y = 1\n")
    git("add", ".")
    git("commit", "-qm", "first")
    environment: dict[tuple[str, str], str | None] = {
        ("place", "code root"): str(tmp_path),
        ("code", "git commit"): git("rev-parse", "HEAD"),
        ("code", "train.py"): git("hash-object", "train.py"),
        ("code", "model.py"): "0" * 40,
    }
    assert not_committed(environment) == ("model.py",)
    assert not_committed(environment | {("code", "git commit"): "1" * 40}) is None
    assert not_committed(environment | {("place", "code root"): "/nowhere"}) is None


def test_rules_against_an_earlier_run_are_whole() -> None:
    """Each has all that the reference page shows, and a name of its own."""
    names = [rule.name for rule in (*ALL_RULES, *AGAINST_RULES)]
    assert len(names) == len(set(names))
    may_lack = {"source", "asks", "on_record", "cost_s"}
    for rule in AGAINST_RULES:
        assert all(getattr(rule, field.name) or field.name in may_lack
                   for field in dataclasses.fields(rule))  # fmt: skip


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ("python /job/train.py --api-key s3 --lr 1", "train.py --api-key *** --lr 1"),
        ("/usr/bin/python3 -u train.py -u 1", "train.py -u 1"),  # as torchrun starts it
        ("python --check-hash-based-pycs always train.py", "train.py"),
        ("python -X faulthandler -W error -OO train.py", "train.py"),
        ("python -Xdev -um pkg.train --lr 1", "pkg.train --lr 1"),
        ("python -m probing._run -m pkg.train x", "pkg.train x"),
        ("python -m probing._run /job/train.py x", "train.py x"),
        ("python -c pass", "-c pass"),
        ("python", "python"),
        ("", ""),
    ],
)
def test_what_was_run_is_the_script_without_what_runs_it(words: str, script: str) -> None:
    """Neither options of the interpreter nor a secret are told of it."""
    assert script_of(words.split()) == script


def test_memory_is_compared_at_the_same_steps_alone() -> None:
    """What is held after thousands of steps is not what is held in the first ones."""
    later = run("2", 3000, allocated_bytes=800 * MIB)
    later = dataclasses.replace(later, settled=later.settled[-200:])
    assert not [m for m in compared(run("1"), later).measures if m.name == "memory"]
    (memory,) = [m for m in compared(run("1", 50), run("2", 50)).measures if m.name == "memory"]
    assert not memory.is_different


@pytest.mark.parametrize(("each", "left"), [(1, 195), (3, 130)])
def test_a_network_that_is_asked_before_each_step_leaves_the_steps(each: int, left: int) -> None:
    """A policy is evaluated all the time; steps after a validation are left out where it is not."""
    asked = [{"step": step} for step in range(0, 200, each)]
    assert len(run("1", tables={"evaluations": asked}).settled) == left
