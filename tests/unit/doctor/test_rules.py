"""What each rule of the doctor says of records made by hand.

Of one with the fault, and of one that looks like it and is healthy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from probing.diagnosis.doctor.hot_lines import lines_in
from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from probing.diagnosis.doctor.rules import RULES

from .failing_cases import FAILING
from .forward_cases import IN_FORWARD
from .frozen_cases import FROZEN
from .hook_cases import HOOKED
from .loss_input_cases import GIVEN
from .made import facts, signs, steps
from .no_sync_cases import SYNCED
from .parameter_cases import UNSYNCED, WRAPPED
from .records import (
    MIB,
    Case,
    after,
    at,
    bad_since,
    batches,
    collectives,
    compilations,
    environment,
    evaluated,
    experts,
    gradients,
    in_forward,
    kept,
    labels,
    layouts,
    loader,
    memory,
    modes,
    normed,
    objects,
    of_steps,
    on_device,
    ooms,
    optimizer,
    parameters,
    relearned,
    reserved,
    swapped,
    table,
    trace,
    trained_meanwhile,
    waits,
    warned,
)
from .rounded_cases import ROUNDED
from .trained_cases import IN_TURN, UNCALLED, UNTRAINED

pytestmark = pytest.mark.anypython


_NAN = math.nan
SCHEDULED = "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1"
SIZES = (
    "Using a target size (torch.Size([{}])) that is different to the input size (torch.Size([{}]))."
    " This will likely lead to incorrect results due to broadcasting."
)
OPEN_STEP = {"step": 90, "start_ns": 1_000_000_000 * 100, "duration": None}
_NOISE: Callable[[int], float] = lambda step: 1.0 + 0.3 * ((31 * step) % 17 - 8) / 8  # noqa: E731
CASES = (
    # numbers: loss and rate
    Case("loss-not-finite", of_steps(loss=after(120, 0.5, _NAN),
         loss_finite=after(120, True, False)), "certain", 120, "as usual up to the step before"),
    Case("loss-not-finite", of_steps(loss=after(120, lambda s: 2.0 * 1.2 ** max(0, s - 80), _NAN),
         loss_finite=after(120, True, False)), "certain", 120, "has diverged"),
    Case("loss-not-finite", of_steps(loss=after(120, 0.5, lambda s: _NAN if s == 120 else 0.5),
         loss_finite=lambda s: s != 120), None),
    Case("loss-not-finite", bad_since(120, role="producer", what="output"), "certain", 120,
         "head.2 (Log) makes it in the forward pass"),
    Case("loss-not-finite", bad_since(120, role="given", what="input"), "certain", 120,
         "what head.2 (Log) is given: the data"),
    Case("loss-not-finite", bad_since(120, role="given", what="parameter"), "certain", 120,
         "the weights are lost"),
    Case("loss-not-finite", bad_since(120, role="given", what="buffer", tensor="mean"), "certain",
         120, "the buffer mean of head.2 (Log) keeps it from step to step"),
    Case("loss-not-finite", bad_since(120, step=90, role="given", what="input"), "certain", 120,
         "as usual up to the step before"),
    Case("diverging", of_steps(loss=after(100, _NOISE, lambda s: 1.1 ** (s - 100))), "likely"),
    Case("diverging", of_steps(loss=_NOISE), None),
    Case("diverging", lambda: facts({"steps": steps(
        200, loss=after(100, _NOISE, lambda s: 1.1 ** (s - 100))),
        "evaluations": [{"step": n // 2, "start_ns": n, "calls": 1} for n in range(400)]}),
        "possible", None, "that of a policy grows, too"),
    Case("diverging", lambda: facts({"steps": steps(
        200, loss=after(100, _NOISE, lambda s: 1.1 ** (s - 100))),
        "evaluations": [{"step": s, "start_ns": s, "calls": 1} for s in range(200)]}),
        "likely"),  # each step is an epoch, with its validation
    *(
        Case("diverging", lambda every=every, each=each: facts({  # type: ignore[misc]
            "steps": steps(900, samples=64, loss=after(500, _NOISE, lambda s: 1.01 ** (s - 500))),
            "evaluations": [{"step": s, "start_ns": s, "calls": 128, "samples": each * 128}
                            for s in range(0, 900, every)]}),
            says, None, words)
        for every, each, says, words in (
            (250, 8, "possible", "that of a policy grows, too"),  # its rollouts
            (400, 8, "likely", ""),
            (250, 64, "likely", ""),  # batches of a tensor of validation
        )
    ),
    Case("diverging", of_steps(loss=after(100, _NOISE, lambda s: min(30.0, 1.1 ** (s - 100)))),
         "possible"),  # a policy's, whose values have come to stand
    Case("loss-spike", of_steps(loss=after(150, _NOISE, lambda s: 9.0 if s == 150 else _NOISE(s))),
         "likely", 150),
    Case("loss-spike", of_steps(loss=after(60, _NOISE, lambda s: 9.0 if s == 60 else _NOISE(s))),
         "possible", 60),
    Case("loss-spike", of_steps(loss=after(150, _NOISE, lambda s: 9.0 - 0.1 * (s - 150))),
         "possible", 150),
    Case("loss-spike", of_steps(loss=lambda s: 0.2 if s == 150 else 0.001 + 0.7 * 0.95**s),
         "possible", 150),  # a sample that is misjudged by a model which knows all others
    Case("loss-spike", of_steps(loss=lambda s: 9.0 if s % 30 == 29 else _NOISE(s)), None),
    Case("loss-spike", of_steps(loss=lambda s: 3 * 0.9**s + 1e-4 * (1 + 9 * (s % 37 == 0))), None),
    Case("rate-raised", of_steps(lr=after(120, 0.1, 30.0), loss=after(120, 1.0, 50.0)),
         "likely", 120),
    Case("rate-raised", of_steps(lr=lambda s: 0.1 * (1.001 - s % 60 / 60)), None),
    Case("rate-cut", of_steps(lr=after(120, 0.1, 1e-5), loss=after(120, 1.0, 0.9)), "possible",
         120, "divided by 10,000 at step 120, from 0.1 to 1e-5, and the loss has not fallen"),
    Case("rate-cut", of_steps(lr=after(120, 0.1, 0.0)), "possible", 120, "was set to zero"),
    Case("rate-cut", of_steps(lr=after(60, 0.1, after(120, 0.01, 0.001))), None),  # milestones
    Case("rate-cut", of_steps(lr=lambda s: 0.1 * (1 - s / 199)), None),
    Case("rate-cut", of_steps(lr=lambda s: 0.1 * math.cos(math.pi * (s % 50) / 100)), None),
    Case("rate-cut", of_steps(lr=lambda s: 0.1 if s % 3 else 1e-4), None),  # two optimizers
    Case("rate-cut", of_steps(lr=after(195, 0.1, 1e-5)), None),
    Case("rate-too-high", of_steps(lr=lambda s: 0.002 * s, optimizer="Adam",
         loss=lambda s: 2.7 if s > 40 else 2.8 - 0.05 * s), "likely", 25, "that was 0.398; the loss"
         " is 2.7, and was 1."),
    Case("rate-too-high", of_steps(lr=0.3, optimizer="AdamW", loss=_NOISE), "likely", 0,
         "has not fallen"),
    Case("rate-too-high", of_steps(lr=0.3, optimizer="SGD", loss=_NOISE), None),
    Case("rate-too-high", of_steps(lr=0.01, optimizer="Adam", loss=_NOISE), None),
    Case("rate-too-high", of_steps(lr=0.1, optimizer="Adam", loss=lambda s: 3 * 0.99**s), None),
    Case("rate-too-high", of_steps(lr=0.1, optimizer="Adam", loss=lambda s: s % 3 - 1), None),
    Case("rate-too-high", of_steps(lr=0.1, optimizer="Adam",
         loss=lambda s: 3 * 0.8**s + 1e-4 * (1 + s // 100)), None),
    Case("rate-zero", of_steps(lr=after(100, 0.1, 0.0)), "likely", 100),
    Case("rate-zero", of_steps(lr=lambda s: 0.1 * (1 + math.cos(math.pi * s / 199))), None),
    Case("rate-zero", of_steps(80, lr=lambda s: 1e-4 * s), None),
    Case("rate-zero", of_steps(lr=0.0), "likely", 0, "the first on record"),
    Case("loss-constant", of_steps(300, loss=lambda s: 0.69314718 + 3e-8 * (s % 3), grad_norm=0.2),
         "likely", 0, "exactly ln 2: what it compares is the same on both sides, in each of 300"),
    Case("loss-constant", of_steps(300, loss=after(120, 1.5, 3.218875825), grad_norm=0.2),
         "possible", 120, "exactly ln 25: all 25 answers are equally likely"),
    Case("loss-constant", of_steps(300, loss=4.2, grad_norm=0.2), "possible", 0, "is 4.2 in each"),
    Case("loss-constant", of_steps(300, loss=0.69314718, grad_norm=0.0), None),  # gradients-zero
    Case("loss-constant", of_steps(300, loss=0.69314718, grad_norm=0.2, lr=0.0), None),
    Case("loss-constant", of_steps(300, loss=0.69314718), None),  # nobody looked at gradients
    Case("loss-constant", of_steps(300, loss=lambda s: 1e-8 * (s % 5), grad_norm=0.2), None),  # PPO
    Case("loss-constant", of_steps(300, loss=lambda s: 0.693147 + 1e-5 * (s % 2), grad_norm=0.2),
         None),  # it moves
    Case("loss-constant", of_steps(59, loss=0.69314718, grad_norm=0.2), None),
    Case("loss-flat", of_steps(300, loss=_NOISE), "possible", 0, "has not fallen in 300 steps"),
    Case("loss-flat", of_steps(300, loss=lambda s: 69558 + 500 * 0.97**s), "possible", 0,
         "has hardly fallen in 300 steps"),
    Case("loss-flat", of_steps(300, loss=_NOISE, lr=3.6e-7), "possible", 0,
         "the learning rate was 3.6e-7 at most"),
    Case("loss-flat", of_steps(300), None),
    Case("loss-flat", of_steps(800, loss=relearned(60, 150)), "possible", 140,
         "2.596 near step 60, 4.3"),
    Case("loss-flat", of_steps(320, loss=relearned(60, 150)), None),  # it may fall again
    Case("loss-flat", of_steps(800, optimizer_steps=2, loss=relearned(60, 150)), None),  # GAN
    Case("loss-flat", of_steps(750, loss=lambda s: relearned(60, 150)(s % 300)), None),
    Case("loss-too-good", of_steps(tokens=512, loss=lambda s: 4 * 0.9**s), None),
    Case("loss-too-good", lambda: facts({"steps": steps(200, tokens=512,
         loss=lambda s: 4 * 0.9**s)}, labels=labels("equal")), "possible",
         words="as models of transformers do"),
    Case("loss-too-good", lambda: facts({"steps": steps(200, tokens=512,
         loss=lambda s: 4 * 0.9**s)}, labels=labels("shifted by one")), None),
    Case("loss-too-good", of_steps(tokens=512), None),
    Case("gradients-not-finite", of_steps(grad_norm=math.nan, optimizer_steps=None), "certain", 0,
         "the script makes no optimizer step then"),
    Case("gradients-not-finite", of_steps(grad_norm=after(120, 1.0, math.inf)), "certain"),
    Case("gradients-not-finite", of_steps(grad_norm=math.nan, amp_scale=1024.0), None),
    Case("gradients-not-finite", of_steps(grad_norm=math.nan, loss=math.nan), None),
    Case("gradients-not-finite", of_steps(
        grad_norm=lambda s: 1.0 if s % 5 else math.nan), None),  # bad samples, left out
    Case("clips-nothing", gradients(step_grad_norm=0.0), "likely", None,
         "have one of 1.41"),
    Case("clips-nothing", gradients(step_grad_norm=0.0, step_clipped_norm=0.0, norm=0.0), None),
    Case("clips-nothing", gradients(step_grad_norm=1.0, step_clipped_norm=0.5), None),
    Case("clips-nothing", gradients(
        step_grad_norm=0.0, step_clipped_norm=0.0, step_optimizer_steps=2), None),
    Case("clipping", of_steps(grad_norm=1.0, clipped_norm=1e-4), "likely"),
    Case("clipping", of_steps(grad_norm=1.0, clipped_norm=1e-4, optimizer="Adam"), "possible"),
    Case("clipping", of_steps(grad_norm=1.0, clipped_norm=1e-4, optimizer="AdamW8bit"), "possible"),
    Case("clipping", of_steps(grad_norm=20.0, clipped_norm=1.0), "possible"),
    Case("clipping", of_steps(grad_norm=8.0, clipped_norm=1.0), None),
    Case("clipping", of_steps(grad_norm=lambda s: 0.5 + s % 2, clipped_norm=lambda s: 0.5 + 0.5
         * (s % 2)), None),
    Case("scaler-skips", of_steps(60, skipped=3, amp_scale=lambda s: 65536 / (1 + s)), "likely"),
    Case("scaler-skips", of_steps(60, skipped=lambda s: int(s == 0) * 6, amp_scale=1024.0), None),
    Case("exploding-gradients", of_steps(grad_norm=after(185, 1.0, 500.0)), "likely", 190),
    Case("exploding-gradients", of_steps(grad_norm=_NOISE), None),
    # numbers: parameters and modes
    *UNTRAINED,
    *IN_TURN,
    *UNCALLED,
    Case("no-optimizer", parameters({"optimizers": 0, "has_gradient": False, "model": "teacher"}),
         None),
    Case("no-optimizer", parameters({"optimizers": 0, "optimizer": None, "version": 1},
         last={"model": None, "has_gradient": False, "has_state": False}), "likely", None,
         "trains other parameters than those of the model"),
    Case("no-optimizer", parameters({"optimizers": 0, "optimizer": None, "version": 90},
         last={"model": None, "has_gradient": False, "has_state": False}), None),  # by hand
    Case("two-optimizers", parameters({"optimizers": 2, "optimizer": "actor, critic"}), "likely"),
    Case("two-optimizers", parameters({}), None),
    Case("never-a-gradient", parameters({"has_state": False, "has_gradient": False,
         "version": 2}), "likely"),
    Case("never-a-gradient", parameters({"has_gradient": False}), None),
    Case("never-a-gradient", lambda: experts(called=[0, 1], learns=[0, 1]), "possible", None,
         "experts.2.weight"),
    Case("never-a-gradient", lambda: experts(called=[0, 1, 2], learns=[0, 1]), "likely"),
    Case("never-a-gradient", lambda: experts(called=[], learns=[0, 1]), "likely"),
    *FAILING,
    *FROZEN,
    *IN_FORWARD,
    *HOOKED,
    *WRAPPED,
    *UNSYNCED,
    *GIVEN,
    *SYNCED,
    *ROUNDED,
    Case("float64", parameters({"dtype": "float64", "numel": 900}), "possible"),
    Case("float64", parameters({"dtype": "float64", "numel": 1}), None),
    Case("never-steps", lambda: facts({"steps": [], "micro_batches": [
        {"step": 0, "backward_s": 0.1, "start_ns": n} for n in range(100)]}), "likely"),
    Case("never-steps", lambda: facts({"steps": [], "micro_batches": [  # steps since it was asked
        {"step": 0, "backward_s": 0.1, "start_ns": n} for n in range(100)],
        "optimizer_steps": [{"step": n} for n in range(99)]}), None),
    Case("never-steps", lambda: facts({"steps": steps(3), "micro_batches": [
        {"step": 0, "backward_s": 0.1, "start_ns": n} for n in range(100)]}), None),
    Case("never-steps", lambda: facts({"steps": [*steps(90, micro_batches=2), OPEN_STEP],
         "micro_batches": [{"step": 90, "backward_s": 0.1, "start_ns": n} for n in range(100)]}),
         "likely", 90, "since step 89"),
    *(
        Case("never-steps", lambda modes=modes: facts({  # type: ignore[misc]
            "steps": [*steps(90, micro_batches=1), OPEN_STEP],
            "micro_batches": [{"step": 90, "backward_s": 0.1}] * 100,
            "torch_trace": trace(*({"step": 90, "training": modes[n % 2]} for n in range(100)),
                                 {"step": 89, "training": True},
                                 {"step": 90, "training": True, "stage": "backward"})}),
            says, 90, words)
        for modes, says, words in (
            ((False, False), "possible", "made, in evaluation mode"),  # an attack on the model
            ((True, False), "likely", "nothing is learned any more"),
        )
    ),
    Case("never-steps", lambda: facts({"steps": [*steps(90, micro_batches=64), OPEN_STEP],
         "micro_batches": [{"step": 90, "backward_s": 0.1, "start_ns": n} for n in range(70)]}),
         None),
    Case("thrown-gradients", gradients(passes=4, step_micro_batches=4, step_wait=0.01), "likely"),
    Case("thrown-gradients", gradients(passes=4, step_micro_batches=4, step_part=0.25), "likely"),
    Case("thrown-gradients", gradients(passes=8, step_micro_batches=lambda s: 3 + s % 7), "likely",
         None, "leaves out its steps"),
    Case("thrown-gradients", gradients(passes=4, step_micro_batches=4), "possible"),  # an attack?
    Case("thrown-gradients", gradients(passes=4, kept_passes=4, step_micro_batches=4), None),
    Case("thrown-gradients", gradients(passes=[None, 4, 4], kept_passes=[None, 1, 1],
                                       step_micro_batches=4, step_wait=0.01), "likely"),
    Case("thrown-gradients", gradients(passes=4, kept_passes=[1, None, None],
                                       step_micro_batches=4, step_wait=0.01), None),
    Case("thrown-gradients", gradients(passes=(2, 1), step_micro_batches=2), None),  # GAN
    Case("not-zeroed", gradients(has_older=True), "likely", None, "Gradients are not set to zero"),
    Case("not-zeroed", gradients(has_older=(False, True)), "likely", None,
         "The gradients of model last.weight are not set"),
    Case("not-zeroed", gradients(), None),
    Case("not-zeroed", gradients(left_by=([None, "opt_g", "opt_g"], None)), "likely", None,
         "first.weight are not set to zero before their own backward pass: it adds to those that"
         " the pass for opt_g leaves"),
    Case("not-zeroed", gradients(left_by=([None, None, "opt_g"], None)), None),
    Case("not-zeroed", gradients(has_older=None), None),
    Case("thrown-gradients", gradients(passes=4, kept_passes=None, step_micro_batches=4), None),
    Case("no-update", gradients(update_ratio=0.0), "certain"),
    Case("no-update", gradients(update_ratio=0.0, live={"parameters": [
         {"optimizers": 1, "dtype": "bfloat16"}]}), "certain", None, "than bfloat16 can tell"),
    Case("no-update", gradients(update_ratio=(0.0, 1e-6)), None),
    Case("no-update", gradients(update_ratio=(0.0, 1e-3), live={"parameters": [
         {"optimizers": 1, "dtype": "bfloat16"}]}), "likely", None, "3 of 6 changes"),
    Case("no-update", gradients(update_ratio=(1e-4, 1e-3), live={"parameters": [
         {"optimizers": 1, "dtype": "bfloat16"}]}), None),
    Case("no-update", gradients(update_ratio=0.0, step_lr=0.0), None),
    Case("no-update", gradients(update_ratio=0.0, norm=1e-6), "possible", None, "has converged"),
    Case("no-update", gradients(update_ratio=0.0, norm=1e-4, step_optimizer="LBFGS"), "possible",
         None, "tolerance_grad"),
    Case("denormals", gradients(200, state_subnormal_share=(0.5, 0.0),
         step_optimizer_s=after(100, 0.02, 0.2)), "likely", None, "most for first.weight"),
    Case("denormals", gradients(200, state_subnormal_share=(0.9, 0.5)), "possible"),
    Case("denormals", gradients(200, state_subnormal_share=0.2), None),
    Case("denormals", gradients(200, state_subnormal_share=0.2,
         step_optimizer_s=after(100, 0.001, 0.002)), None),
    Case("denormals", gradients(200, weight_subnormal_share=0.2), "possible"),
    Case("scheduler-first", warned(SCHEDULED), "likely", 0, "at train.py:7"),
    Case("scheduler-first", warned(SCHEDULED, amp_scale=1024.0), "possible"),
    Case("scheduler-first", warned(SCHEDULED, amp_scale=1024.0, skipped=2), None),
    Case("scheduler-first", warned("lr_scheduler.step() is fine"), None),
    Case("broadcast-loss", warned(SIZES.format("32", "32, 1")), "likely", 0, "[32, 32]"),
    Case("broadcast-loss", warned(SIZES.format("1", "32, 1")), None),
    Case("broadcast-loss", warned(SIZES.format("", "32")), None),
    Case("evaluation-mode", lambda: modes(lambda step: step < 30), "likely", 30),
    Case("evaluation-mode", lambda: modes(lambda _: True), None),
    Case("training-mode", lambda: evaluated(training=True), "likely", 20),
    Case("training-mode", lambda: evaluated(training=True, norm=False), "possible", 20),
    Case("training-mode", lambda: evaluated(training=True, model="averaged"), "possible", 20),
    Case("training-mode", lambda: evaluated(training=True, model="averaged", off_calls=9), None),
    Case("training-mode", lambda: evaluated(training=True, model="teacher", trained_root="Student"),
         None),
    Case("training-mode", lambda: evaluated(training=False), None),
    Case("training-mode", lambda: evaluated(training=True, given=[0] * 9), "possible", 20,
         "the training's own data"),  # PreciseBN
    Case("training-mode", lambda: evaluated(training=True, given=[0] * 9 + [1] * 5, off_calls=5),
         "possible", 20),  # and then a validation
    Case("training-mode", lambda: evaluated(training=True, given=[1] * 9), "likely", 20,
         "the evaluation's data"),
    Case("training-mode", lambda: evaluated(training=True, given=[0] * 8 + [1]), "likely", 20),
    Case("bad-statistics", lambda: normed(3, 0), "certain", None, "of norm.0 (BatchNorm2d) in net"),
    Case("bad-statistics", lambda: normed(0, None), None),
    Case("bad-statistics", lambda: facts({}, {"modules": [{"model": "net"}]}), None),  # older agent
    # data
    Case("data-wait", lambda: facts({"steps": steps(80, **waits(0.6)), "batches": batches(80)},
         loader(num_workers=0)), "certain", None, "no workers"),
    Case("data-wait", lambda: facts({"steps": steps(80, **waits(0.3)), "batches": batches(
        80, worker=lambda s: s % 4, duration=lambda s: 0.2 if s % 4 == 2 else 0.01)},
        loader(worker=2, waiting=True, awaited=True, outstanding=2)), "likely", None,
        "mostly for worker 2 (pid 7), while the others have nothing to do"),
    Case("data-wait", lambda: facts({"steps": steps(80, **waits(0.3)), "batches": batches(
        80, worker=lambda s: s % 4, duration=lambda s: 0.2 if s % 4 == 2 else 0.01)},
        loader(worker=2, waiting=True, awaited=True, outstanding=8)), "likely", None,
        "30 % of each step; loader 0 of Photos: 2 workers"),  # all four are equally slow
    Case("data-wait", lambda: facts({"steps": steps(80, **waits(0.3)), "batches": batches(
        80, worker=lambda s: s % 4, duration=lambda s: 0.2 if s % 4 == 2 else 0.01)}, loader()),
        "likely", None, "30 % of each step; loader 0 of Photos: 2 workers"),  # not seen at work
    Case("data-wait", lambda: facts({"steps": steps(80, **waits(0.3)), "batches": batches(
        80, loader=lambda s: int(s % 10 > 0), duration=0.02)}, {"dataloaders": [
        *loader(num_workers=0)["dataloaders"], *loader(loader=1, num_workers=1)["dataloaders"]]}),
        "likely", None, "loader 1 of Photos: 1 worker"),  # the other one is of an evaluation
    Case("data-wait", lambda: facts({"steps": steps(80, **waits(0.25)), "batches": batches(80)},
         loader()), "possible"),
    Case("data-wait", lambda: facts({
         "steps": steps(80, **waits(0.6), host_bound=lambda s: s % 5 < 1), "batches": batches(80)},
         loader()), "possible", None, "the device has work meanwhile"),
    Case("data-wait", lambda: facts({
         "steps": steps(80, **waits(0.6), host_bound=lambda s: s % 5 > 0), "batches": batches(80)},
         loader()), "certain", None, "60 % of each step; loader 0"),
    Case("data-wait", lambda: facts({"steps": steps(80, **waits(0.05)), "batches": batches(80)},
         loader()), None),
    Case("data-wait", lambda: facts({"steps": steps(80, duration=6e-4, data_wait_s=3e-4),
         "batches": batches(80)}, loader()), "possible", None, "50 % of each step"),
    Case("data-wait", lambda: facts({"steps": steps(90, data_wait_s=lambda s: 4.0 * (s == 50),
         duration=lambda s: 4.1 if s == 50 else 0.1), "batches": batches(90)}, loader()), None),
    Case("same-first-batch", lambda: facts({"steps": steps(60), "batches": batches(60, batch=0)},
         loader(sampler="SequentialSampler")), "likely"),
    Case("same-first-batch", lambda: facts({"steps": steps(60), "batches": batches(60)},
         loader()), None),
    Case("same-first-batch", lambda: facts(  # another loader evaluates
        {"steps": steps(60), "batches": batches(60, batch=0)},
        {"dataloaders": [*loader()["dataloaders"],
                         *loader(loader=1, sampler="SequentialSampler")["dataloaders"]]}),
        "possible", None, "a new iterator over the loader"),
    Case("same-order", lambda: facts({}, loader(sampler="SequentialSampler")), "possible"),
    Case("same-order", lambda: facts({}, loader(sampler="DistributedSampler", sampler_epoch=0)),
         "likely"),
    Case("same-order", lambda: facts({}, loader(sampler="DistributedSampler", sampler_epoch=2)),
         None),
    Case("same-order", lambda: facts({}, loader()), None),
    Case("whole-stream", lambda: facts({}, loader(divides_stream=False)), "possible",
         None, "every sample comes 2 times"),
    Case("whole-stream", lambda: facts({}, loader(divides_stream=True)), None),
    Case("whole-stream", lambda: facts({}, loader(divides_stream=None)), None),
    Case("whole-stream", lambda: facts({}, loader(divides_stream=False, given=0)), None),
    Case("same-order", lambda: facts({}, {"dataloaders": [
        *loader(sampler="SequentialSampler", given=600)["dataloaders"],
        *loader(loader=1)["dataloaders"]]}), None),
    Case("uneven-micro-batches", lambda: facts({"micro_batches": [
        {"step": n // 4, "tokens": 12 if n % 4 else 200, "duration": 0.1} for n in range(80)]}),
        "possible"),
    Case("uneven-micro-batches", lambda: facts({"micro_batches": [
        {"step": n // 4, "tokens": 200, "duration": 0.1} for n in range(80)]}), None),
    Case("uneven-micro-batches", lambda: facts({"micro_batches": [
        {"step": n // 4, "micro_batch": n % 4, "samples": 8, "elements": 100 * (1 + n * n % 7),
         "duration": 0.1} for n in range(80)]}), "possible"),
    Case("uneven-micro-batches", lambda: facts({"micro_batches": [  # of two models
        {"step": n // 2, "micro_batch": n % 2, "samples": 8, "elements": 100 + 900 * (n % 2),
         "duration": 0.1} for n in range(80)]}), None),
    Case("uneven-micro-batches", lambda: facts({  # a critic is given real and made samples
        "steps": steps(40, optimizer_steps=2), "micro_batches": [
        {"step": n // 2, "samples": 64 if n % 2 else 32, "duration": 0.1}
        for n in range(80)]}), None),
    Case("uneven-micro-batches", lambda: facts({"micro_batches": [  # of two tasks
        {"step": n // 2, "micro_batch": n % 2, "samples": 8 + n % 2, "duration": 0.1,
         "elements": 100 + 900 * (n % 2) + n % 7} for n in range(80)]}), None),
    Case("uneven-micro-batches", lambda: facts({"micro_batches": [  # of an epoch the last is small
        {"step": n // 4, "micro_batch": n % 4, "samples": 5 - (n % 52 == 48), "duration": 0.1,
         "elements": 160 - 32 * (n % 52 == 48)} for n in range(80)]}), None),
    Case("uneven-micro-batches", lambda: facts({"micro_batches": [  # done again in two halves
        {"step": n // 3, "micro_batch": n % 3, "samples": 8 if n % 3 else 16, "failed": not n % 3,
         "duration": 0.1} for n in range(60)]}), None),
    # speed
    Case("slower-since", of_steps(backward_s=after(120, 0.04, 0.14), duration=after(120, 0.1, 0.2),
         cpu_s=after(120, 0.1, 0.2)), "likely", 120, "the backward pass"),
    Case("slower-since", of_steps(backward_s=after(120, 0.04, 0.14), duration=after(120, 0.1, 0.2),
         cpu_s=after(120, 0.1, 0.2), tokens=after(120, 100, 200)), "possible", 120, "200 tokens"),
    Case("slower-since", of_steps(forward_s=after(60, 0.04, after(150, 0.1, 0.9)),
         duration=after(60, 0.1, after(150, 0.2, 1.0)), cpu_s=after(60, 0.02, 0.12),
         involuntary_switches=after(150, 0, 90)), "likely", 60, "the forward pass"),  # then a crowd
    Case("slower-since", of_steps(forward_s=after(150, 0.04, 0.9), duration=after(150, 0.1, 1.0),
         cpu_s=after(60, 0.001, 0.01), involuntary_switches=after(150, 0, 90)), "possible", 150,
         "other programs use its cores"),
    Case("slower-since", of_steps(duration=lambda s: 0.1 + 0.05 * ((7 * s) % 11) / 11), None),
    Case("slower-since", of_steps(backward_s=after(120, 0.002, 0.0064), forward_s=0.002,
         cpu_s=after(120, 0.005, 0.0056), duration=after(120, 0.005, 0.01),
         involuntary_switches=after(120, 0.04, 1.2)), "possible", 120,
         "other programs use its cores"),
    Case("slower-since", of_steps(backward_s=after(120, 0.002, 0.004), forward_s=0.002,
         cpu_s=after(120, 0.005, 0.0052), duration=after(120, 0.005, 0.007),
         involuntary_switches=after(120, 0.04, 1.2)), None),
    Case("slower-since", of_steps(forward_s=after(120, 0.03, 0.05), duration=after(120, 0.1, 0.17),
         backward_s=after(120, 0.05, 0.09), optimizer_s=after(120, 0.02, 0.03)), "possible", 120,
         "alike"),  # as by the clock of a processor
    Case("slower-since", of_steps(forward_s=after(120, 0.03, 0.05), duration=after(120, 0.1, 0.17),
         backward_s=after(120, 0.05, 0.10), optimizer_s=0.02), "likely", 120, "the backward pass"),
    Case("slower-since", of_steps(backward_s=after(120, 0.004, 0.008),
         duration=after(120, 0.01, 0.016)), "possible", 120),  # of 1.2 s before, nobody knows
    Case("slower-and-slower", of_steps(duration=lambda s: 0.001 + 0.0001 * s,
         other_s=lambda s: 0.0001 * s), "possible"),  # in all of 2 s
    Case("slower-and-slower", of_steps(duration=lambda s: 0.1 + 0.001 * s,
         other_s=lambda s: 0.001 * s), "likely"),
    Case("slower-and-slower", of_steps(duration=lambda s: 0.1 + 0.001 * s,
         backward_s=lambda s: 0.001 * s, tokens=lambda s: 100 + s), "possible"),
    Case("slower-and-slower", of_steps(duration=lambda s: 0.1 + 0.001 * s,
         forward_s=lambda s: 0.04 + 0.001 * s), "likely", None, "the forward pass"),
    Case("slower-and-slower", of_steps(), None),
    Case("every-nth-step", of_steps(duration=lambda s: 0.1 + 1.6 * (s % 10 == 9),
         forward_s=lambda s: 0.04 + 1.6 * (s % 10 == 9)), "possible", None, "Every 10th step"),
    Case("every-nth-step", of_steps(duration=lambda s: 0.1 + 0.5 * (s % 10 == 9),
         other_s=lambda s: 0.5 * (s % 10 == 9)), None),  # a checkpoint, a third of the time
    Case("crowded-processors", of_steps(cpu_s=0.03, involuntary_switches=20), "possible"),
    Case("crowded-processors", of_steps(cpu_s=0.04, involuntary_switches=20), None),
    Case("crowded-processors", of_steps(cpu_s=0.05), None),
    Case("crowded-processors", of_steps(cpu_s=0.05, involuntary_switches=20, other_s=0.08), None),
    Case("crowded-processors", of_steps(cpu_s=0.2, involuntary_switches=20, data_wait_s=0.08),
         None),  # it makes its data itself
    Case("evaluations", lambda: facts({"steps": steps(100), "evaluations": [
        {"step": 5 * n, "duration": 2.0, "start_ns": 1_000_000_000 * (11 + 5 * n),
         "data_wait_s": 0.1} for n in range(20)]}), "likely"),
    Case("evaluations", lambda: facts({"steps": steps(100), "evaluations": [
        {"step": 50, "duration": 20.0, "start_ns": 60_000_000_000}]}), None),
    Case("checkpoints", lambda: facts({"steps": steps(100), "checkpoints": [
        {"step": n, "duration": 0.05, "start_ns": 1_000_000_000 * (11 + n), "caller": "t.py:3"}
        for n in range(99)]}), "likely"),
    Case("checkpoints", lambda: facts({"steps": steps(100), "checkpoints": [
        {"step": n, "duration": 1e-3, "start_ns": 1_000_000_000 * (11 + n), "caller": "t.py:3"}
        for n in range(99)]}, stacks=in_forward("os.fsync(loss)")), "likely"),
    Case("checkpoints", lambda: facts({"steps": steps(100), "checkpoints": [
        {"step": n, "duration": 0.015, "start_ns": 1_000_000_000 * (11 + n), "caller": "t.py:3"}
        for n in range(99)]}), "possible"),
    Case("checkpoints", lambda: facts({"steps": steps(100), "checkpoints": [
        {"step": n, "duration": 0.02, "start_ns": 1_000_000_000 * (11 + n), "caller": "t.py:3"}
        for n in range(99)]}, stacks=[*in_forward("os.fsync(loss)")[:1],
        *[(frames, 400) for frames, _ in in_forward("loss = model(loss)")]]), "likely", None,
        "33 % of the time"),
    Case("checkpoints", lambda: facts({"steps": steps(400), "checkpoints": [  # once it learns
        {"step": n, "duration": 0.03, "start_ns": 1_000_000_000 * (10 + n) + 50_000_000,
         "caller": "t.py:3"} for n in (0, 1, *range(300, 400))]}), "likely", None, "30 % of"),
    Case("checkpoints", lambda: facts({"steps": steps(400), "checkpoints": [
        {"step": n, "duration": 0.03, "start_ns": 1_000_000_000 * (10 + n) + 50_000_000,
         "caller": "t.py:3"} for n in (0, 1, *range(390, 400))]}), None),
    Case("checkpoints", lambda: facts({"steps": steps(100), "checkpoints": [
        {"step": 50, "duration": 9.0, "start_ns": 60_000_000_000, "caller": "t.py:3"}]}), None),
    Case("garbage-collector", of_steps(gc_s=0.06), "certain"),
    Case("garbage-collector", of_steps(gc_s=lambda s: 0.1 * (s % 100 == 0)), None),
    Case("garbage-collector", of_steps(gc_s=after(90, 0.0, 0.06), process_cpu_s=0.002,
         duration=after(90, 0.1, 0.2)), None),  # others use its processor meanwhile
    Case("collectives", lambda: collectives(40, 0.001, 512), "likely"),
    Case("collectives", lambda: collectives(2, 0.02, 9 * MIB), "possible"),
    Case("collectives", lambda: collectives(2, 0.001, 9 * MIB), None),
    Case("own-code", of_steps(duration=0.5, other_s=0.4, cpu_s=0.5), "possible"),
    Case("own-code", lambda: facts({"steps": steps(40, duration=0.5, other_s=0.4, gradients_s=0.03,
         cpu_s=0.05)}, stacks=in_forward("time.sleep(0.03)")), "possible", None,
         "86 % of each step is outside of the model and the optimizer"),
    Case("own-code", of_steps(), None),
    Case("own-code", on_device(4.0, duration=0.5, other_s=0.4, cpu_s=0.5), None),
    Case("own-code", on_device(0.3, [at("print(loss.item())", 80)], duration=0.5, other_s=0.4,
                               cpu_s=0.5), None),
    Case("one-module", lambda: facts({"steps": steps(40), "torch_trace": trace(*(
        {"step": s, "start_ns": s, "module": m, "depth": d, "duration": t} for s in range(40)
        for m, d, t in (("Net", 0, 0.04), ("a", 1, 0.03), ("b", 1, 0.005), ("c", 1, 0.004))))},
        stacks=in_forward("total = total + pixel")),
        "possible", None, "a (Net), loops in Python at records.py:"),
    Case("one-module", lambda: facts({"steps": steps(40), "torch_trace": trace(*(  # it computes
        {"step": s, "start_ns": s, "module": m, "depth": d, "duration": t} for s in range(40)
        for m, d, t in (("Net", 0, 0.04), ("a", 1, 0.03), ("b", 1, 0.005), ("c", 1, 0.004))))},
        stacks=in_forward("loss = model(loss)")), None),
    Case("one-module", lambda: facts({"steps": steps(40), "torch_trace": trace(*(
        {"step": s, "start_ns": s, "module": m, "depth": d, "duration": t} for s in range(40)
        for m, d, t in (("Net", 0, 0.04), ("a", 1, 0.039), ("a.0", 2, 0.02), ("a.1", 2, 0.018))))},
        stacks=in_forward("total = total + pixel")), None),
    Case("one-module", lambda: trained_meanwhile("torch_trace", trace(*(
        {"step": s, "start_ns": s, "module": m, "depth": d, "duration": t} for s in range(80)
        for m, d, t in (("Net", 0, 0.04), ("a", 1, 0.03), ("b", 1, 0.005), ("c", 1, 0.004)))),
        stacks=in_forward("total = total + pixel")), "possible", None, "1.0 calls"),
    Case("one-module", lambda: facts({"steps": steps(40), "torch_trace": trace(*(  # twins
        {"step": s, "start_ns": s, "model": w, "module": m, "depth": d, "duration": t * share}
        for s in range(40) for w, share in (("online", 1.0), ("target", 0.05))
        for m, d, t in (("Net", 0, 0.04), ("a", 1, 0.03), ("b", 1, 0.005), ("c", 1, 0.004))))},
        stacks=in_forward("total = total + pixel")), "possible", None, "1.0 calls"),
    Case("collectives", lambda: trained_meanwhile("collectives", [
        {"step": s, "op": "all_reduce", "caller": "t.py:9", "duration": 0.02, "wait_ns": 20_000_000,
         "bytes": 9 * MIB} for s in range(80)]), None),
    Case("one-module", lambda: facts({"steps": steps(40),
        "evaluations": [{"step": 20, "start_ns": 0, "duration_ns": 10_000}],
        "torch_trace": trace(*(
        {"step": s, "start_ns": at, "module": m, "depth": d, "duration": t} for s in range(40)
        for at in (5_000, 20_000) for m, d, t in (
            ("Net", 0, 0.04), ("a", 1, 0.03), ("b", 1, 0.005), ("c", 1, 0.004))))},
        stacks=in_forward("total = total + pixel")), "possible", None, "1.0 calls"),
    Case("small-batches", of_steps(duration=0.002, samples=1), "possible"),
    Case("small-batches", of_steps(duration=0.2, samples=1), None),
    # what looks like a fault, and is none
    Case("loss-spike", lambda: facts({"steps": steps(  # a restart, with harder data
        400, lr=lambda s: 1e-3 * (1 - s % 200 / 201),
        loss=lambda s: (5.0 if s >= 200 else 1.0) * 0.99 ** (s % 200) + 0.001 * (7 * s % 5))}),
        "possible", 200, "was multiplied by"),
    Case("training-mode", lambda: evaluated(
        training=True, module={"class": "FrozenBatchNorm2d"}), None),
    Case("training-mode", lambda: evaluated(training=True, module={"training": False}), None),
    Case("same-first-batch", lambda: facts({"steps": steps(60), "batches": [
        {"loader": 0, "batch": n, "duration": 0.001, "exhausted": bool(n), "failed": False,
         "step": s} for s in range(60) for n in (0, 1)]},
        loader(sampler="SequentialSampler", batches=1)), None),
    Case("data-wait", lambda: facts({
        "steps": steps(150, duration=0.4, data_wait_s=0.16, forward_s=0.1, backward_s=0.1,
                       optimizer_s=0.04),
        "batches": [{"loader": 0, "batch": n % 100, "duration": 0.015 if n % 100 == 0 else 0.01,
                     "exhausted": False, "failed": False, "step": n // 16}
                    for n in range(150 * 16)]},
        loader(persistent_workers=False)), "certain", None, "40 % of the last"),
    Case("data-wait", lambda: facts({  # a slow loader of evaluations, with workers of its own
        "steps": steps(150, duration=0.1, data_wait_s=0.03, forward_s=0.03, backward_s=0.03,
                       optimizer_s=0.01),
        "batches": [{"loader": e, "batch": n, "duration": 0.3 if e else 0.03, "exhausted": False,
                     "failed": False, "step": s, "worker": (n if e else s) % (4 if e else 2)}
                    for s in range(150) for e, number in ((0, 1), (1, 40 if s % 50 == 49 else 0))
                    for n in range(number)]},
        loader()), "likely", None, "loader 0 of Photos"),
    Case("rate-raised", lambda: facts({"steps": steps(
        6000, lr=lambda s: 0.9 if s < 900 or s >= 5000 else 0.001,
        loss=lambda s: 1.0 + (s > 5000))}),
        None),
    Case("rate-zero", lambda: facts({"steps": steps(400, lr=0.0, loss=lambda s: 2 * 0.99**s)},
        {"optimizers": [{"optimizer": "AdamW", "param_group": 0, "lr": 0.0},
                        {"optimizer": "AdamW", "param_group": 1, "lr": 1e-3}]}), None),
    Case("same-order", lambda: facts({}, {"dataloaders": [
        {**loader()["dataloaders"][0], "sampler": "DistributedSampler", "sampler_epoch": 0,
         "sampler_shuffles": False}]}), None),
    Case("diverging", lambda: facts({"steps": steps(400, loss_finite=None, loss=lambda s:
        None if s < 200 and s % 2 else
        1.0 - 0.004 * s if s < 200 else 0.2 if s < 250 else 0.2 * 1.04 ** (s - 250))}),
        "likely", 205, "at step 205"),
    Case("two-optimizers", lambda: facts({"steps": steps(60), "optimizer_steps": [
        {"step": s, "optimizer": "lbfgs", "optimizers": 1} for s in range(60)]}, {"parameters": [
        {"model": "net", "parameter": "w", "numel": 9, "trainable": True, "optimizers": 2,
         "optimizer": "adam, lbfgs"}]}), None),
    Case("two-optimizers", lambda: facts({"steps": steps(60), "optimizer_steps": [
        {"step": s, "optimizer": name, "optimizers": 1} for s in range(60)
        for name in ("adam", "lbfgs")]}, {"parameters": [
        {"model": "net", "parameter": "w", "numel": 9, "trainable": True, "optimizers": 2,
         "optimizer": "adam, lbfgs"}]}), "likely"),
    # memory
    Case("memory-grows", lambda: memory(lambda s: 500 * MIB + 2 * s * MIB), "likely"),
    Case("memory-grows", lambda: memory(lambda s: 500 * MIB + s * MIB // 2), "possible"),
    Case("memory-grows", lambda: memory(lambda s: 500 * MIB + min(s, 90) * MIB), None),
    Case("memory-grows", lambda: memory(lambda s: (500 + 2 * s) * MIB, lambda s: 2 * s * MIB,
                                        shm_bytes=0), "possible", None, "in files that are mapped"),
    Case("memory-grows", lambda: memory(lambda s: (500 + 2 * s) * MIB, lambda s: 2 * s * MIB),
         "likely"),  # shared memory is mapped, too, and nobody can be asked for it
    Case("memory-grows", lambda: memory(lambda s: (500 + 2 * s) * MIB, virtual=lambda _: MIB << 13),
         "possible", None, "memory that was allocated before"),
    Case("memory-grows", lambda: kept(512), "possible"),  # a loss of each step, in four months
    Case("memory-grows", lambda: kept(512, peak=79.9), "likely"),  # full in six hours
    Case("memory-grows", lambda: kept(MIB), "likely"),
    Case("memory-near-limit", lambda: facts({"memory": [{"step": 1, "node_used_bytes": 95 * MIB,
         "node_total_bytes": 100 * MIB, "resident_bytes": MIB}]}), "possible"),
    Case("memory-near-limit", lambda: facts({"memory": [{"step": 1, "node_used_bytes": 50 * MIB,
         "node_total_bytes": 100 * MIB, "resident_bytes": MIB}]}), None),
    Case("one-activation", lambda: facts({"steps": steps(30)}, {"activations": [
        {"module": "attn.1", "bytes": 900 * MIB}, {"module": "attn.0", "bytes": 99 * MIB}]}),
        "possible", None, "attn.1"),
    Case("one-activation", lambda: facts({"steps": steps(30)}, {"activations": [
        {"module": f"attn.{n}", "bytes": 90 * MIB} for n in range(4)]}), None),
    Case("one-activation", lambda: facts({"steps": steps(30)}, {"activations": [
        {"module": "OptimizedModule", "bytes": 900 * MIB}]}), None),
    Case("out-of-memory", lambda: facts({"ooms": [{"step": 3, "requested_bytes": MIB << 20,
         "device": "cpu", "phase": "forward", "error": "RuntimeError: no memory"}]}), "certain", 3),
    Case("out-of-memory", lambda: facts({}), None),
    Case("out-of-memory", lambda: facts({"steps": steps(200), "ooms": ooms(0, 1)}), "possible", 1,
         "198 steps have been made since"),
    Case("out-of-memory", lambda: facts({"steps": steps(200), "ooms": ooms(40, 90, 150)}),
         "certain", 150),
    Case("out-of-memory", lambda: facts({"steps": steps(200), "ooms": ooms(198)}), "certain"),
    Case("out-of-memory", lambda: facts({"steps": steps(200), "ooms": ooms(0, 9, 20)}), "possible",
         20, "179 steps have been made since"),  # a search for the batch size
    Case("swapping", lambda: facts({"steps": steps(60, major_faults=9)}, swapped(900 * MIB)),
         "likely"),
    Case("swapping", lambda: facts({"steps": steps(60, major_faults=9)}, swapped(0)), None),
    Case("swapping", lambda: facts({"steps": steps(60)}, swapped(900 * MIB)), None),
    # an accelerator, and what is sampled
    Case("synchronises", on_device(0.3, [at("print(loss.item())", 40),
         at("loss = model(loss)", 60)]), "likely", None, "print(loss.item())"),
    Case("synchronises", on_device(0.3, [at("torch.cuda.empty_cache()", 15),
         at("loss = model(loss)", 85)]), "likely", None, "empties torch's cache"),
    Case("synchronises", on_device(0.95, [at("torch.cuda.empty_cache()", 4),
         at("loss = model(loss)", 96)]), "likely", None, "4 % of the time"),
    Case("blocking-copies", on_device(0.3, [at("model = model.to(loss)", 90)]), "likely", None,
         "model.to(loss)"),
    Case("blocking-copies", on_device(0.9, [at("model = model.to(loss)", 90)]), None),
    Case("blocking-copies", on_device(0.3, [at("model = model.to(loss)", 9),
         at("loss = model(loss)", 91)]), None),
    Case("synchronises", on_device(0.9, [at("print(loss.item())", 40)]), None),
    Case("synchronises", on_device(0.3, [at("loss = model(loss)", 100)]), None),
    Case("host-bound", on_device(0.3), "possible"),
    Case("host-bound", on_device(0.9), None),
    Case("host-bound", on_device(0.3, host_bound=False), None),
    Case("host-bound", on_device(0.3, data_wait_s=0.05), None),
    Case("fragmentation", reserved(75, 40), "likely"),
    Case("fragmentation", reserved(40, 20), "possible"),
    Case("fragmentation", reserved(40, 38), None),
    Case("object-collectives", objects(60, "all_gather_object (/site-packages/torch/d.py:3)"),
         "likely", None, "all_gather_object at"),
    Case("object-collectives", objects(60, "all_gather (/site-packages/torch/d.py:3)"), None),
    Case("object-collectives", objects(3, "all_gather_object (/site-packages/torch/d.py:3)"),
         None),
    # set-up
    Case("too-many-threads", environment(num_threads="8", cpus="1"), "certain"),
    Case("too-many-threads", environment(num_threads="1", cpus="2"), None),
    Case("anomaly-detection", environment(anomaly_detection="True"), "certain"),
    Case("anomaly-detection", environment(anomaly_detection="False"), None),
    Case("profiler-on", environment(profiler="True"), "likely"),
    Case("profiler-on", environment(profiler="False"), None),
    Case("unread-variables", environment(NCCL_TIMEOUT="1800"), "possible"),
    Case("unread-variables", environment(NCCL_IB_TIMEOUT="22"), None),
    Case("one-parameter", table(optimizer_s=0.05), "possible", None, "is table.weight: all of it"),
    Case("one-parameter", table(optimizer_s=0.03), None),
    Case("one-parameter", table(optimizer_s=0.05, numel=100, bytes=400), None),
    Case("one-parameter", table(optimizer_s=0.05, others=8), None),
    Case("unfused-optimizer", optimizer(), "possible", None, "AdamW takes 30 %"),
    Case("unfused-optimizer", optimizer(implementation="fused"), None),
    Case("unfused-optimizer", optimizer(device="cuda:0"), None),  # foreach, by itself
    Case("unfused-optimizer", optimizer(implementation="for-loop", device="cuda:0"), "possible"),
    Case("unfused-optimizer", optimizer(tensors=4), None),
    Case("unfused-optimizer", optimizer(optimizer="Lion"), None),
    Case("channels-last-lost", layouts("contiguous", "contiguous", "channels_last"), "likely"),
    Case("channels-last-lost", layouts("either", "contiguous", "channels_last"), "possible"),
    Case("channels-last-lost", layouts("contiguous", "channels_last", "channels_last"), None),
    Case("channels-last-lost", layouts("contiguous", "contiguous", weights="either"), None),
    Case("recompiling", compilations(*range(10, 90, 4)), "likely", 14, "again and again"),
    Case("recompiling", compilations(1, 2, 3, 4), None),  # warm-up
    Case("recompiling", compilations(*range(10, 90, 4), took_s=0.001), None),
    Case("compilation-given-up", compilations(*range(1, 9), limit=9), "certain", 9, "8"),
    Case("compilation-given-up", compilations(*range(1, 9)), None),
)  # fmt: skip
ELSEWHERE = {
    "hang", "waits", "stands-still", "ended", "ended-quietly",  # test_examine.py: of verdicts
    "terminated",  # test_terminated.py
    # test_doctor.py of tests/cli: they look at the living process
    "zero-gradients", "vanishing-gradients", "reseeded",
    "descriptors", "threads", "processes", "shared-memory-files",
    "tf32-off",  # below: it needs an accelerator
    "throttled",  # test_machine.py: it looks at the kernel's files
    "worker-memory-grows",  # test_workers.py: it looks at processes
    "waiting-call", "competing-thread",  # test_waiting_calls.py: they look at samples
    "frozen-in-training",  # test_devices.py: with the other rules about modes
    "few-long-steps",  # test_long_steps.py: it needs a script to look at
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


@pytest.mark.parametrize(
    ("rule", "of_step"),
    [
        ("diverging", {"loss": after(100, _NOISE, lambda s: 1.1 ** (s - 100))}),
        ("exploding-gradients", {"grad_norm": after(185, 1.0, 500.0)}),
    ],
)
def test_settings_for_a_steadier_training_are_those_of_this_one(
    rule: str, of_step: Mapping[str, Any]
) -> None:
    """A tenth of its own rate, a warm-up, clipping, and the commands for what can be set now."""
    (sign,) = signs(rule, of_steps(lr=0.03, **of_step)())
    for words in ("learning rate 0.003 (it was 0.03)", "warmed up", "`probing PID act clip 1.0`"):
        assert words in sign.fix
    (bare,) = signs(rule, of_steps(**of_step)())
    assert bare.fix.startswith("Lower the learning rate to a tenth")


def test_a_loss_whose_start_is_not_on_record_is_not_called_healthy() -> None:
    """A flat one may have fallen before: that nothing is found says nothing then."""
    rows = [row | {"step": row["step"] + 5000} for row in steps(300, loss=_NOISE)]
    with pytest.raises(NotLookedAt, match="the start of the training is not on record any more"):
        signs("loss-flat", facts({"steps": rows}))


def test_each_rule_is_tested_both_ways() -> None:
    """No rule is without a case in which it speaks and one in which it is silent."""
    said = {case.rule for case in CASES if case.says}
    silent = {case.rule for case in CASES if not case.says}
    names = {rule.name for rule in RULES} - ELSEWHERE
    assert names == said
    assert names == silent


@pytest.mark.parametrize(("phase", "fix"), [("forward", "keep a running sum"), ("both", "Detach")])
def test_what_grows_in_the_forward_pass_alone_is_no_graph(phase: str, fix: str) -> None:
    """A graph that is kept makes backward passes longer, a list that is gone through does not."""
    grows = lambda step: 0.04 + 0.001 * step  # noqa: E731
    passes: dict[str, Any] = {
        "forward_s": grows,
        **({"backward_s": grows} if phase == "both" else {}),
    }
    (sign,) = signs("slower-and-slower", of_steps(duration=lambda s: 0.1 + 0.002 * s, **passes)())
    assert fix in sign.fix


def test_what_only_measures_is_no_line_of_the_program() -> None:
    """A thread that others hold up is met where the agent reads its counters, which is nobody's."""
    place = "lib/python3.11/site-packages/probing/agent/sources"
    main, line = "thread (1): MainThread", "<module> (/job/train.py:11)"
    stacks = [
        ((main, line, f"HostTimes.read (/{place}/steps/rows/host_times.py:90)"), 60),
        ((main, line, f"all_reduce (/{place}/collectives/calls.py:9)"), 10),  # it calls torch's
        ((main, "<module> (/job/train.py:12)"), 30),
    ]
    found = [(one.place, one.share) for one in lines_in(stacks)]
    assert found == [("train.py:12", 0.75), ("train.py:11", 0.25)]
    assert lines_in(stacks[:1]) == []


def test_lines_are_those_of_the_thread_that_makes_the_steps() -> None:
    """Where it is another one, as on Ray, the main thread only waits for it."""
    stacks = [
        (("thread (1): MainThread", "main (/job/main.py:25)", "join (/lib/python3.11/t.py:9)"), 50),
        (("thread (11): Thread-1 (train)", "augment (/job/train.py:8)"), 40),
    ]
    for number, place in ((11, "train.py:8"), (1, "main.py:25"), (None, "main.py:25")):
        made = facts({"steps": steps(60, thread_id=number)}, stacks=stacks)
        assert [(line.place, line.share) for line in made.hot_lines()] == [(place, 1.0)]
    assert lines_in(stacks, 12) == []  # its number is not told, and nothing is known of it


def test_a_line_in_a_backward_pass_is_no_code_outside_of_it() -> None:
    """A rank that waits in its backward pass is sampled there: another phase tells of that."""
    torch = "/lib/python3.11/site-packages/torch"
    main, line = "thread (1): MainThread", "<module> (/job/train.py:11)"
    stacks = [
        ((main, line, f"_engine_run_backward ({torch}/autograd/graph.py:979)"), 60),
        ((main, line, f"Optimizer.profile_hook_step.<locals>.wrapper ({torch}/o.py:530)"), 30),
        ((main, "<module> (/job/train.py:12)", "load (/job/train.py:9)"), 50),
    ]
    assert [(one.place, one.is_outside) for one in lines_in(stacks)] == [
        ("train.py:11", False), ("train.py:9", True)
    ]  # fmt: skip


def test_a_trend_is_seen_through_a_crowd() -> None:
    """Where others use the machine, it is told by processor time, whatever single steps take."""
    made = of_steps(
        600,
        duration=lambda s: 0.1 + 0.4 * ((7 * s) % 11 > 5),
        cpu_s=lambda s: 0.02 + 0.0001 * s + 0.5 * (s % 40 == 7),
        forward_s=lambda s: 0.02 + 0.0001 * s,
    )()
    assert signs("slower-and-slower", made) == []
    made.crowd = "others use the machine"
    (sign,) = signs("slower-and-slower", made)
    assert (sign.certainty, "in processor time" in sign.evidence[0]) == ("possible", True)


@pytest.mark.parametrize(
    ("reason", "fix"),
    [("s.calls == 6 # s.calls += 1", "buffer"), ("tensor 'x' size mismatch at index 1", "")],
)
def test_what_was_compiled_again_is_mended_by_its_guard(reason: str, fix: str) -> None:
    """A value is to be a tensor; of sizes the rule's own fix speaks. The newest guard is told."""
    row = {"start_ns": 1, "function": "forward", "file": "t.py", "lineno": 3, "frame": 0,
           "attempt": 7, "duration_s": 1.0, "reason": "an older one", "failure": None}  # fmt: skip
    last = {**row, "start_ns": 2, "attempt": 8, "function": None, "reason": reason,
            "failure": "recompile limit exceeded"}  # fmt: skip
    (sign,) = signs(
        "compilation-given-up", facts({"steps": steps(60)}, {"compilations": [row, last]})
    )
    assert sign.evidence[1] == f"the guard that failed last: {reason}"
    assert fix in sign.fix
    assert bool(fix) == bool(sign.fix)
