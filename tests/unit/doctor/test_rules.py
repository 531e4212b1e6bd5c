"""What each rule of the doctor says of records made by hand.

Of one with the fault, and of one that looks like it and is healthy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from probing.diagnosis.doctor.examine import RULES
from probing.diagnosis.doctor.findings import NotLookedAt
from probing.messages.labels import LabelsAnswer

from .made import Facts, facts, signs, steps

pytestmark = pytest.mark.anypython

Make = Callable[[], Facts]


class Case(NamedTuple):
    """One record.

    Attributes:
        rule: The rule that is asked.
        says: How sure it is; None where it finds nothing.
        since: The step that it names.
        words: What its sentence has in it.
    """

    rule: str
    make: Make
    says: str | None
    since: int | None = None
    words: str = ""


def _steps(count: int = 200, **columns: Any) -> Make:
    return lambda: facts({"steps": steps(count, **columns)})


def _parameters(*rows: dict[str, Any], count: int = 60, **columns: Any) -> Make:
    base = {
        "model": "model", "root": "Net", "numel": 100, "dtype": "float32", "trainable": True,
        "has_gradient": True, "version": 50, "optimizers": 1, "optimizer": "optimizer",
        "has_state": True, "state_bytes": 800, "device": "cpu", "parameter": "last.weight",
    }  # fmt: skip
    made: list[dict[str, Any]] = [
        base,
        *({**base, "parameter": "first.weight", **row} for row in rows),
    ]
    return lambda: facts({"steps": steps(count, **columns)}, {"parameters": made})


def _environment(**values: str) -> Make:
    rows: list[dict[str, Any]] = [
        {"kind": "torch", "name": name, "value": value} for name, value in values.items()
    ]
    return lambda: facts({"steps": steps(50)}, {"environment": rows})


def _after(step: int, before: Any, since: Any) -> Callable[[int], Any]:
    """A value until a step, and another one from there on."""

    def at(number: int) -> Any:
        value = before if number < step else since
        return value(number) if callable(value) else value

    return at


def _batches(count: int, **columns: Any) -> list[dict[str, Any]]:
    base: dict[str, Any] = {"loader": 0, "duration": 0.01, "exhausted": False, "failed": False}
    base.update(columns)
    return [
        {"step": step, "batch": step}
        | {name: value(step) if callable(value) else value for name, value in base.items()}
        for step in range(count)
    ]


def _loader(**columns: Any) -> dict[str, list[dict[str, Any]]]:
    row: dict[str, Any] = {
        "loader": 0, "dataset": "Photos", "num_workers": 2, "persistent_workers": True,
        "worker": 0, "pid": 7, "given": 100, "batches": 50, "epochs": 3, "sampler": "RandomSampler",
        "sampler_epoch": None,
    }  # fmt: skip
    return {"dataloaders": [{**row, **columns}]}


def _waits(share: float) -> dict[str, Any]:
    return {"duration": 0.1 / (1 - share), "data_wait_s": 0.1 * share / (1 - share)}


def _trace(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    base = {"model": "model", "root": "Net", "class": "Net", "stage": "forward", "duration": 0.01,
            "duration_ns": 10_000_000, "depth": 0, "training": True}  # fmt: skip
    return [{**base, **row} for row in rows]


def _modes(training: Callable[[int], bool]) -> Facts:
    made = steps(60)
    trace = _trace(
        *({"step": r["step"], "start_ns": r["start_ns"] + 1, "training": training(r["step"])}
          for r in made)
    )  # fmt: skip
    live: dict[str, list[dict[str, Any]]] = {
        "parameters": [{"model": "model", "optimizers": 1, "parameter": "weight"}],
        "modules": [{"model": "model", "class": "Dropout"}, {"model": "model", "class": "Linear"}],
    }
    return facts({"steps": made, "torch_trace": trace}, live)


def _evaluated(*, training: bool, model: str = "model", norm: bool = True) -> Facts:
    evaluation = {"step": 20, "start_ns": 5_000, "duration_ns": 1_000, "duration": 1e-6}
    calls = [{"step": 20, "start_ns": 5_100 + n, "training": training, "model": model}
             for n in range(9)]  # fmt: skip
    live: dict[str, list[dict[str, Any]]] = {
        "parameters": [{"model": "model", "optimizers": 1, "parameter": "weight"}],
        "modules": [{"model": "model", "class": "BatchNorm2d" if norm else "Dropout"}],
    }
    made = {"steps": steps(40), "evaluations": [evaluation], "torch_trace": _trace(*calls)}
    return facts(made, live)


def _collectives(calls: int, wait_s: float, size: int) -> Facts:
    made = [
        {"step": step, "op": "all_reduce", "caller": "train.py:9", "duration": wait_s,
         "duration_ns": int(wait_s * 1e9), "wait_ns": int(wait_s * 1e9), "bytes": size}
        for step in range(40)
        for _ in range(calls)
    ]  # fmt: skip
    return facts({"steps": steps(40), "collectives": made})


def _swapped(size: int) -> dict[str, list[dict[str, Any]]]:
    row = {"pid": 1, "role": "trainer", "name": "python", "private_bytes": _MIB, "swap_bytes": size}
    return {"host_memory": [row]}


def _on_device(  # of a training that computes for a part of each step on an accelerator
    busy: float, stacks: list[tuple[tuple[str, ...], int]] | None = None, **columns: Any
) -> Make:
    times = [{"step": s, "depth": 0, "stage": "forward", "device_s": 0.1 * busy} for s in range(60)]
    made = steps(60, **{"device_s": 0.1, "host_bound": True, **columns})
    return lambda: facts({"steps": made, "device_times": times}, stacks=stacks)


def _at(text: str, count: int, *below: str) -> tuple[tuple[str, ...], int]:
    """Samples at the line of this file that has a text."""
    return ("thread (1): MainThread", f"train ({__file__}:{_line(text)})", *below), count


def _a_script(loss: Any, model: Any, torch: Any) -> None:  # read by `_at`, never called
    print(loss.item())
    torch.cuda.empty_cache()
    loss = model(loss)


def _reserved(reserved: float, peak: float, total: float = 80.0) -> Make:
    row = {"phase": "after_step", "device": "cuda:0", "device_total_bytes": int(total * _GIB),
           "allocated_bytes": _GIB, "reserved_bytes": int(reserved * _GIB)}  # fmt: skip
    rows = [
        {**row, "step": s, "peak_bytes": int(peak * _GIB) if s == 3 else _GIB} for s in range(9)
    ]
    return lambda: facts({"memory": rows})


def _objects(calls: int, *below: str) -> Make:
    place = f"{Path(__file__).name}:{_line('loss = model(loss)')}"
    rows = [
        {"step": s, "op": "all_gather", "caller": place,
         "duration": 0.01, "wait_ns": 10_000_000, "bytes": 8}
        for s in range(calls)
    ]  # fmt: skip
    stacks = [_at("loss = model(loss)", 60, *below), _at("print(loss.item())", 40)]
    return lambda: facts({"steps": steps(60), "collectives": rows}, stacks=stacks)


def _line(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.strip() == text)


def _trained_meanwhile(table: str, rows: list[dict[str, Any]]) -> Facts:
    """A record that has rows of steps that ended after the steps were read."""
    return facts({"steps": steps(40), table: rows})


def _memory(values: Callable[[int], float]) -> Facts:
    rows = [
        {"step": s, "phase": "after_step", "device": "cpu", "resident_bytes": int(values(s))}
        for s in range(200)
    ]
    return facts({"steps": steps(200), "memory": rows}, is_alive=False)


def _labels(shift: str) -> LabelsAnswer:
    return LabelsAnswer(
        origin="the next batch", inputs="tokens", labels="labels", step=1, waited_s=0.0, samples=1,
        read=1, trained=9, ignored=0, all_ignored=(), same=1.0, next=0.0, previous=0.0, shift=shift,
        tokenizer=None, texts=(), shown=(),
    )  # fmt: skip


_NAN = math.nan
_MIB, _GIB = 1 << 20, 1 << 30
_NOISE: Callable[[int], float] = lambda step: 1.0 + 0.3 * ((31 * step) % 17 - 8) / 8  # noqa: E731
CASES = (
    # numbers: loss and rate
    Case("loss-not-finite", _steps(loss=_after(120, 0.5, _NAN),
         loss_finite=_after(120, True, False)), "certain", 120, "as usual up to the step before"),
    Case("loss-not-finite", _steps(loss=_after(120, lambda s: 2.0 * 1.2 ** max(0, s - 80), _NAN),
         loss_finite=_after(120, True, False)), "certain", 120, "has diverged"),
    Case("loss-not-finite", _steps(loss=_after(120, 0.5, lambda s: _NAN if s == 120 else 0.5),
         loss_finite=lambda s: s != 120), None),
    Case("diverging", _steps(loss=_after(100, _NOISE, lambda s: 1.0 * 1.1 ** (s - 100))), "likely"),
    Case("diverging", _steps(loss=_NOISE), None),
    Case("loss-spike", _steps(loss=_after(150, _NOISE, lambda s: 9.0 if s == 150 else _NOISE(s))),
         "likely", 150),
    Case("loss-spike", _steps(loss=_after(150, _NOISE, lambda s: 9.0 - 0.1 * (s - 150))),
         "possible", 150),
    Case("loss-spike", _steps(loss=lambda s: 9.0 if s % 30 == 29 else _NOISE(s)), None),
    Case("loss-spike", _steps(loss=lambda s: 3 * 0.9**s + 1e-4 * (1 + 9 * (s % 37 == 0))), None),
    Case("rate-raised", _steps(lr=_after(120, 0.1, 30.0), loss=_after(120, 1.0, 50.0)),
         "likely", 120),
    Case("rate-raised", _steps(lr=lambda s: 0.1 * (1.001 - s % 60 / 60)), None),
    Case("rate-zero", _steps(lr=_after(100, 0.1, 0.0)), "likely", 100),
    Case("rate-zero", _steps(lr=lambda s: 0.1 * (1 + math.cos(math.pi * s / 199))), None),
    Case("rate-zero", _steps(80, lr=lambda s: 1e-4 * s), None),
    Case("loss-flat", _steps(300, loss=_NOISE), "possible", 0),
    Case("loss-flat", _steps(300), None),
    Case("loss-too-good", _steps(tokens=512, loss=lambda s: 4 * 0.9**s), None),
    Case("loss-too-good", lambda: facts({"steps": steps(200, tokens=512,
         loss=lambda s: 4 * 0.9**s)}, labels=_labels("equal")), "likely"),
    Case("loss-too-good", lambda: facts({"steps": steps(200, tokens=512,
         loss=lambda s: 4 * 0.9**s)}, labels=_labels("shifted by one")), None),
    Case("loss-too-good", _steps(tokens=512), None),
    Case("clipping", _steps(grad_norm=1.0, clipped_norm=1e-4), "likely"),
    Case("clipping", _steps(grad_norm=4.0, clipped_norm=1.0), "possible"),
    Case("clipping", _steps(grad_norm=lambda s: 0.5 + s % 2, clipped_norm=lambda s: 0.5 + 0.5
         * (s % 2)), None),
    Case("scaler-skips", _steps(60, skipped=3, amp_scale=lambda s: 65536 / (1 + s)), "likely"),
    Case("scaler-skips", _steps(60, skipped=lambda s: int(s == 0) * 6, amp_scale=1024.0), None),
    Case("exploding-gradients", _steps(grad_norm=_after(185, 1.0, 500.0)), "likely", 190),
    Case("exploding-gradients", _steps(grad_norm=_NOISE), None),
    # numbers: parameters and modes
    Case("no-optimizer", _parameters({"optimizers": 0, "optimizer": None, "has_state": None}),
         "likely", None, "first.weight"),
    Case("no-optimizer", _parameters({"optimizers": 0, "has_gradient": False, "model": "teacher"}),
         None),
    Case("two-optimizers", _parameters({"optimizers": 2, "optimizer": "actor, critic"}), "likely"),
    Case("two-optimizers", _parameters({}), None),
    Case("never-a-gradient", _parameters({"has_state": False, "has_gradient": False,
         "version": 2}), "likely"),
    Case("never-a-gradient", _parameters({"has_gradient": False}), None),
    Case("frozen-state", _parameters({"trainable": False, "state_bytes": 9 * _MIB}), "certain"),
    Case("frozen-state", _parameters({"trainable": False, "has_state": False, "state_bytes": 0}),
         None),
    Case("float64", _parameters({"dtype": "float64", "numel": 900}), "possible"),
    Case("float64", _parameters({"dtype": "float64", "numel": 1}), None),
    Case("never-steps", lambda: facts({"steps": [], "micro_batches": [
        {"step": 0, "backward_s": 0.1, "start_ns": n} for n in range(100)]}), "likely"),
    Case("never-steps", lambda: facts({"steps": steps(3), "micro_batches": [
        {"step": 0, "backward_s": 0.1, "start_ns": n} for n in range(100)]}), None),
    Case("evaluation-mode", lambda: _modes(lambda step: step < 30), "likely", 30),
    Case("evaluation-mode", lambda: _modes(lambda _: True), None),
    Case("training-mode", lambda: _evaluated(training=True), "likely", 20),
    Case("training-mode", lambda: _evaluated(training=True, norm=False), "possible", 20),
    Case("training-mode", lambda: _evaluated(training=True, model="averaged"), None),
    Case("training-mode", lambda: _evaluated(training=False), None),
    # data
    Case("data-wait", lambda: facts({"steps": steps(80, **_waits(0.6)), "batches": _batches(80)},
         _loader(num_workers=0)), "certain", None, "no workers"),
    Case("data-wait", lambda: facts({"steps": steps(80, **_waits(0.3)), "batches": _batches(
        80, worker=lambda s: s % 4, duration=lambda s: 0.2 if s % 4 == 2 else 0.01)}, _loader()),
        "likely", None, "worker 2"),
    Case("data-wait", lambda: facts({"steps": steps(80, **_waits(0.05)), "batches": _batches(80)},
         _loader()), None),
    Case("data-wait", lambda: facts({"steps": steps(90, data_wait_s=lambda s: 4.0 * (s == 50),
         duration=lambda s: 4.1 if s == 50 else 0.1), "batches": _batches(90)}, _loader()), None),
    Case("same-first-batch", lambda: facts({"steps": steps(60), "batches": _batches(60, batch=0)},
         _loader(sampler="SequentialSampler")), "likely"),
    Case("same-first-batch", lambda: facts({"steps": steps(60), "batches": _batches(60)},
         _loader()), None),
    Case("same-order", lambda: facts({}, _loader(sampler="SequentialSampler")), "possible"),
    Case("same-order", lambda: facts({}, _loader(sampler="DistributedSampler", sampler_epoch=0)),
         "likely"),
    Case("same-order", lambda: facts({}, _loader(sampler="DistributedSampler", sampler_epoch=2)),
         None),
    Case("same-order", lambda: facts({}, _loader()), None),
    Case("uneven-micro-batches", lambda: facts({"micro_batches": [
        {"step": n // 4, "tokens": 12 if n % 4 else 200, "duration": 0.1} for n in range(80)]}),
        "possible"),
    Case("uneven-micro-batches", lambda: facts({"micro_batches": [
        {"step": n // 4, "tokens": 200, "duration": 0.1} for n in range(80)]}), None),
    # speed
    Case("slower-since", _steps(backward_s=_after(120, 0.04, 0.14), duration=_after(120, 0.1, 0.2),
         cpu_s=_after(120, 0.1, 0.2)), "likely", 120, "the backward pass"),
    Case("slower-since", _steps(backward_s=_after(120, 0.04, 0.14), duration=_after(120, 0.1, 0.2),
         cpu_s=_after(120, 0.1, 0.2), tokens=_after(120, 100, 200)), "possible", 120, "200 tokens"),
    Case("slower-since", _steps(duration=lambda s: 0.1 + 0.05 * ((7 * s) % 11) / 11), None),
    Case("slower-and-slower", _steps(duration=lambda s: 0.1 + 0.001 * s,
         other_s=lambda s: 0.001 * s), "likely"),
    Case("slower-and-slower", _steps(duration=lambda s: 0.1 + 0.001 * s,
         backward_s=lambda s: 0.001 * s, tokens=lambda s: 100 + s), "possible"),
    Case("slower-and-slower", _steps(), None),
    Case("crowded-processors", _steps(cpu_s=0.05, involuntary_switches=20), "possible"),
    Case("crowded-processors", _steps(cpu_s=0.05), None),
    Case("evaluations", lambda: facts({"steps": steps(100), "evaluations": [
        {"step": 5 * n, "duration": 2.0, "start_ns": 1_000_000_000 * (11 + 5 * n)}
        for n in range(20)]}), "likely"),
    Case("evaluations", lambda: facts({"steps": steps(100), "evaluations": [
        {"step": 50, "duration": 20.0, "start_ns": 60_000_000_000}]}), None),
    Case("checkpoints", lambda: facts({"steps": steps(100), "checkpoints": [
        {"step": n, "duration": 0.05, "start_ns": 1_000_000_000 * (11 + n), "caller": "t.py:3"}
        for n in range(99)]}), "likely"),
    Case("checkpoints", lambda: facts({"steps": steps(100), "checkpoints": [
        {"step": 50, "duration": 9.0, "start_ns": 60_000_000_000, "caller": "t.py:3"}]}), None),
    Case("garbage-collector", _steps(gc_s=0.06), "certain"),
    Case("garbage-collector", _steps(gc_s=lambda s: 0.1 * (s % 100 == 0)), None),
    Case("collectives", lambda: _collectives(40, 0.001, 512), "likely"),
    Case("collectives", lambda: _collectives(2, 0.02, 9 * _MIB), "possible"),
    Case("collectives", lambda: _collectives(2, 0.001, 9 * _MIB), None),
    Case("own-code", _steps(duration=0.5, other_s=0.4, cpu_s=0.5), "possible"),
    Case("own-code", _steps(), None),
    Case("one-module", lambda: facts({"steps": steps(40), "torch_trace": _trace(*(
        {"step": s, "start_ns": s, "module": m, "depth": d, "duration": t} for s in range(40)
        for m, d, t in (("Net", 0, 0.04), ("a", 1, 0.03), ("b", 1, 0.005), ("c", 1, 0.004))))}),
        "possible", None, "a (Net)"),
    Case("one-module", lambda: facts({"steps": steps(40), "torch_trace": _trace(*(
        {"step": s, "start_ns": s, "module": m, "depth": d, "duration": t} for s in range(40)
        for m, d, t in (("Net", 0, 0.04), ("a", 1, 0.039), ("a.0", 2, 0.02), ("a.1", 2, 0.018))))}),
        None),
    Case("one-module", lambda: _trained_meanwhile("torch_trace", _trace(*(
        {"step": s, "start_ns": s, "module": m, "depth": d, "duration": t} for s in range(80)
        for m, d, t in (("Net", 0, 0.04), ("a", 1, 0.03), ("b", 1, 0.005), ("c", 1, 0.004))))),
        "possible", None, "1.0 calls"),
    Case("collectives", lambda: _trained_meanwhile("collectives", [
        {"step": s, "op": "all_reduce", "caller": "t.py:9", "duration": 0.02, "wait_ns": 20_000_000,
         "bytes": 9 * _MIB} for s in range(80)]), None),
    Case("small-batches", _steps(duration=0.002, samples=1), "possible"),
    Case("small-batches", _steps(duration=0.2, samples=1), None),
    # memory
    Case("memory-grows", lambda: _memory(lambda s: 500 * _MIB + 2 * s * _MIB), "likely"),
    Case("memory-grows", lambda: _memory(lambda s: 500 * _MIB + s * _MIB // 2), "possible"),
    Case("memory-grows", lambda: _memory(lambda s: 500 * _MIB + min(s, 90) * _MIB), None),
    Case("memory-near-limit", lambda: facts({"memory": [{"step": 1, "node_used_bytes": 95 * _MIB,
         "node_total_bytes": 100 * _MIB, "resident_bytes": _MIB}]}), "possible"),
    Case("memory-near-limit", lambda: facts({"memory": [{"step": 1, "node_used_bytes": 50 * _MIB,
         "node_total_bytes": 100 * _MIB, "resident_bytes": _MIB}]}), None),
    Case("one-activation", lambda: facts({"steps": steps(30)}, {"activations": [
        {"module": "attn.1", "bytes": 900 * _MIB}, {"module": "attn.0", "bytes": 99 * _MIB}]}),
        "possible", None, "attn.1"),
    Case("one-activation", lambda: facts({"steps": steps(30)}, {"activations": [
        {"module": f"attn.{n}", "bytes": 90 * _MIB} for n in range(4)]}), None),
    Case("out-of-memory", lambda: facts({"ooms": [{"step": 3, "requested_bytes": _MIB << 20,
         "device": "cpu", "phase": "forward", "error": "RuntimeError: no memory"}]}), "certain", 3),
    Case("out-of-memory", lambda: facts({}), None),
    Case("swapping", lambda: facts({"steps": steps(60, major_faults=9)}, _swapped(900 * _MIB)),
         "likely"),
    Case("swapping", lambda: facts({"steps": steps(60, major_faults=9)}, _swapped(0)), None),
    Case("swapping", lambda: facts({"steps": steps(60)}, _swapped(900 * _MIB)), None),
    # an accelerator, and what is sampled
    Case("synchronises", _on_device(0.3, [_at("print(loss.item())", 40),
         _at("loss = model(loss)", 60)]), "likely", None, "print(loss.item())"),
    Case("synchronises", _on_device(0.3, [_at("torch.cuda.empty_cache()", 15),
         _at("loss = model(loss)", 85)]), "possible", None, "empty_cache"),
    Case("synchronises", _on_device(0.9, [_at("print(loss.item())", 40)]), None),
    Case("synchronises", _on_device(0.3, [_at("loss = model(loss)", 100)]), None),
    Case("host-bound", _on_device(0.3), "possible"),
    Case("host-bound", _on_device(0.9), None),
    Case("host-bound", _on_device(0.3, host_bound=False), None),
    Case("host-bound", _on_device(0.3, data_wait_s=0.05), None),
    Case("fragmentation", _reserved(75, 40), "likely"),
    Case("fragmentation", _reserved(40, 20), "possible"),
    Case("fragmentation", _reserved(40, 38), None),
    Case("object-collectives", _objects(60, "all_gather_object (/site-packages/torch/d.py:3)"),
         "likely", None, "all_gather_object at"),
    Case("object-collectives", _objects(60, "all_gather (/site-packages/torch/d.py:3)"), None),
    Case("object-collectives", _objects(3, "all_gather_object (/site-packages/torch/d.py:3)"),
         None),
    # set-up
    Case("too-many-threads", _environment(num_threads="8", cpus="1"), "certain"),
    Case("too-many-threads", _environment(num_threads="1", cpus="2"), None),
    Case("anomaly-detection", _environment(anomaly_detection="True"), "certain"),
    Case("anomaly-detection", _environment(anomaly_detection="False"), None),
    Case("profiler-on", _environment(profiler="True"), "likely"),
    Case("profiler-on", _environment(profiler="False"), None),
    Case("recompiling", _environment(compiled_frames="1"), None),
)  # fmt: skip
ELSEWHERE = {
    "hang", "waits", "stands-still", "ended", "ended-quietly",  # test_examine.py: of verdicts
    # test_doctor.py of tests/cli: they look at the living process
    "zero-gradients", "vanishing-gradients", "not-zeroed", "reseeded",
    "descriptors", "threads", "processes", "shared-memory-files",
    "tf32-off",  # below: it needs an accelerator
    "throttled",  # test_machine.py: it looks at the kernel's files
}  # fmt: skip


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.rule}-{case.says}-{n}" for n, case in enumerate(CASES)]
)
def test_a_rule_says_what_is_so(case: Case) -> None:
    """A rule finds its fault with its step, and nothing in what only looks like it."""
    found = signs(case.rule, case.make())
    assert [sign.certainty for sign in found] == ([case.says] if case.says else [])
    if case.since is not None:
        assert found[0].since_step is not None
        assert abs(found[0].since_step - case.since) <= 1
    assert case.words in "".join(f"{sign.summary} {sign.evidence}" for sign in found)


def test_each_rule_is_tested_both_ways() -> None:
    """No rule is without a case in which it speaks and one in which it is silent."""
    said = {case.rule for case in CASES if case.says}
    silent = {case.rule for case in CASES if not case.says}
    names = {rule.name for rule in RULES} - ELSEWHERE
    assert names - {"recompiling"} == said
    assert names == silent


def test_tf32_is_asked_for_where_there_is_an_accelerator() -> None:
    """On a CPU that is not looked at, and said so."""
    with pytest.raises(NotLookedAt, match="no accelerator"):
        signs("tf32-off", _environment(device="cpu")())
    values = {"device": "cuda:0", "float32_matmul_precision": "highest"}
    rows = [{"kind": "torch", "name": name, "value": value} for name, value in values.items()]
    parameters = [{"trainable": True, "dtype": "float32", "device": "cuda:0"}]
    asked = facts({}, {"environment": rows, "parameters": parameters})
    assert [sign.certainty for sign in signs("tf32-off", asked)] == ["possible"]
