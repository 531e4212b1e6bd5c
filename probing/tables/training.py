"""The tables of the training itself: module calls and steps.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import (
    ALLOCATED,
    ALLOCATED_BYTES,
    DURATION,
    DURATION_NS,
    FAILED,
    MODEL,
    ROOT,
    SEQ,
    START_NS,
    STEP,
    THREAD,
    seconds,
)
from .records import Column, Table

STAGES = ("forward", "backward", "optimizer", "step", "replay")

TORCH_TRACE = Table(
    name="torch_trace",
    kind="recorded",
    doc="Every call of every torch module, every optimizer step and every whole step. A row is"
    " written when the call starts and completed when it ends, so an open row (`duration IS NULL`)"
    " is what the process is inside of right now, or was when it died.",
    columns=(
        STEP,
        Column(
            name="module",
            type="text",
            doc="The module's qualified name in its root, such as `blocks.3.attn`; the class name"
            " for a root and for an optimizer. Wrappers (DDP, FSDP, torch.compile, activation"
            " checkpointing) leave no trace in it. A shared module goes by its first name.",
        ),
        Column(
            name="stage",
            type="enum",
            values=STAGES,
            doc="`forward`, `backward`, `optimizer` (the optimizer's step), `step` (from the end"
            " of one optimizer step to the end of the next) or `replay` (the call that queues a"
            " CUDA graph, whose name is its number in the order of the captures).",
        ),
        DURATION,
        ALLOCATED,
        Column(name="class", type="text", doc="The class of the module or optimizer."),
        ROOT,
        MODEL,
        Column(
            name="depth",
            type="int64",
            bits=8,
            doc="How many module calls this one is nested in, 255 at most.",
        ),
        Column(
            name="recomputed",
            type="bool",
            doc="Whether it ran inside the backward pass (activation checkpointing).",
        ),
        Column(name="training", type="bool", doc="Whether its root was in training mode."),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        ALLOCATED_BYTES,
        SEQ,
    ),
)

STEP_PHASES = (
    "data_wait",
    "to_device",
    "forward",
    "loss",
    "backward",
    "gradients",
    "optimizer",
    "other",
)
"""What a rank's training thread spends a step on by itself; each is a column of python.steps."""

_LOSS = Column(
    name="loss",
    type="float64",
    closing=True,
    doc="What `backward()` was called on, without the scale of a gradient scaler; the sum, where it"
    " was called several times. On a device it arrives with the next step.",
)
_SAMPLES = Column(
    name="samples",
    type="int64",
    closing=True,
    doc="Samples: the first dimension of the model's first input.",
)
_TOKENS = Column(
    name="tokens",
    type="int64",
    closing=True,
    doc="Tokens: the elements of the model's first input, where that is a matrix of integers.",
)
_MICRO_BATCH_PHASES = (
    seconds("data_wait_s", "Waiting for a DataLoader's next batch."),
    seconds(
        "to_device_s",
        "From the batch's arrival to the call of the model: the copy to the device, and what else"
        " the script does there.",
    ),
    seconds("forward_s", "In calls of root modules."),
    seconds(
        "loss_s",
        "From the return of a root module to the next one, or to the backward pass: the loss,"
        " where it is no module.",
    ),
    seconds("backward_s", "In backward passes, recomputation included."),
    seconds(
        "gradient_sync_s",
        "Waiting for other ranks in backward passes, and from there to the optimizer: for the"
        " collectives that the training thread waits for itself, and for DistributedDataParallel,"
        " from its reducer's last call to the end of the pass. No part of `backward_s` nor of"
        " `gradients_s`. NULL where there was none, or where it cannot be told apart: what a device"
        " waits for is part of `device_s` alone.",
    ),
)

STEPS = Table(
    name="steps",
    kind="recorded",
    doc="One row per training step: its loss and what it spent its time on. The last one is open:"
    " it is the step in progress. Times are those of the training thread, so work that is queued on"
    " a device counts where the thread waits for it; a phase that there was not is NULL. The phases"
    " add up to `duration`.",
    columns=(
        STEP,
        DURATION,
        _LOSS._replace(
            doc="The mean of the micro-batches' losses; their sum, where each was divided by their"
            " number. On a device it arrives with the next step. NULL where optimizers stepped by"
            " losses of their own, which `python.optimizer_steps` has."
        ),
        Column(
            name="first_loss",
            type="float64",
            closing=True,
            doc="The loss of the first micro-batch: what `optimizer.step(closure)` gives back."
            " Whole, also where it was divided to be a share of the step's.",
        ),
        Column(
            name="last_loss",
            type="float64",
            closing=True,
            doc="The same of the last micro-batch: what scripts print that accumulate gradients.",
        ),
        Column(
            name="loss_finite",
            type="bool",
            closing=True,
            doc="Whether all its losses are neither infinite nor NaN.",
        ),
        Column(
            name="grad_norm",
            type="float64",
            closing=True,
            doc="The norm of all gradients before clipping: that of `clip_grad_norm_`, where the"
            " script calls it; else taken every few steps, as far as the budget goes.",
        ),
        Column(
            name="clipped_norm",
            type="float64",
            closing=True,
            doc="The same after clipping by `clip_grad_norm_`: what the optimizer has used. NULL"
            " where the script does not clip.",
        ),
        Column(
            name="lr",
            type="float64",
            closing=True,
            doc="The learning rate of the first parameter group of the optimizer that ended it.",
        ),
        _SAMPLES,
        _TOKENS,
        Column(
            name="tokens_per_s",
            type="float64",
            unit="1/s",
            closing=True,
            doc="`tokens` by `duration`.",
        ),
        Column(
            name="flops",
            type="float64",
            closing=True,
            doc="Floating-point operations, estimated for a model that is trained on tokens: 6 for"
            " each token and each parameter that is not an embedding's (arXiv:2001.08361, 2.1).",
        ),
        Column(
            name="mfu",
            type="float64",
            closing=True,
            doc="Model FLOPs utilization: `flops` by `duration` and by what the device does at best"
            " in the precision that the model is multiplied in, from its maker's data sheet: that"
            " of autocast, else of its weights (16 bits, TF32 where the script allows it, 32 bits);"
            " of a MIG slice, its share of that. FP8 inside of modules is not seen. NULL on a"
            " processor, on an unknown device, and where the precision cannot be told.",
        ),
        Column(
            name="micro_batches",
            type="int64",
            closing=True,
            doc="How many there were.",
        ),
        *_MICRO_BATCH_PHASES,
        seconds(
            "gradients_s",
            "From the backward pass to the optimizer: unscaling, clipping, explicit reductions.",
        ),
        seconds("optimizer_s", "In the step of an optimizer."),
        seconds("other_s", "Everything else."),
        seconds(
            "device_s",
            "What the accelerator took from the end of the step before to the end of this one, by"
            " events in its current stream; NULL without one. It arrives with the next step.",
        ),
        Column(
            name="host_bound",
            type="bool",
            closing=True,
            doc="Whether the accelerator had done all that was queued before this step when the"
            " host had queued the step: then it waits for the host, not the host for it. So it is"
            " in each step of a script that waits for its device in each, as by `loss.item()`."
            " NULL without an accelerator.",
        ),
        Column(
            name="amp_scale",
            type="float64",
            closing=True,
            doc="What a gradient scaler multiplied the loss with.",
        ),
        Column(
            name="skipped",
            type="int64",
            closing=True,
            doc="Optimizer steps that a gradient scaler left out since the last one.",
        ),
        ALLOCATED,
        Column(
            name="optimizer",
            type="text",
            closing=True,
            doc="The class of the optimizer that ended it; NULL for a step of inference, for one"
            " without an optimizer, and for the step in progress.",
        ),
        Column(
            name="optimizer_steps",
            type="int64",
            closing=True,
            doc="How many steps of optimizers it has, each a row of `python.optimizer_steps`; NULL"
            " where there was none.",
        ),
        Column(
            name="model",
            type="text",
            closing=True,
            doc="The models whose parameters were stepped, by their names in `python.modules`.",
        ),
        seconds("cpu_s", "Processor time of the training thread."),
        seconds("process_cpu_s", "Processor time of the whole process, all threads together."),
        seconds("gc_s", "In Python's garbage collector, in whichever thread it ran."),
        Column(
            name="minor_faults",
            type="int64",
            closing=True,
            doc="Page faults of the training thread that needed no device.",
        ),
        Column(
            name="major_faults",
            type="int64",
            closing=True,
            doc="Page faults of the training thread that waited for a device: memory was read back"
            " from swap, or a file from disk.",
        ),
        Column(
            name="voluntary_switches",
            type="int64",
            closing=True,
            doc="How often the training thread gave the processor up, to wait for something.",
        ),
        Column(
            name="involuntary_switches",
            type="int64",
            closing=True,
            doc="How often the kernel took the processor away from the training thread, for another"
            " thread or process.",
        ),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        ALLOCATED_BYTES,
        SEQ,
    ),
)

MICRO_BATCHES = Table(
    name="micro_batches",
    kind="recorded",
    doc="One row per micro-batch: from the wait for its data, or the first call of a module, to the"
    " end of its backward pass. A step has as many as it accumulates gradients of.",
    columns=(
        STEP,
        Column(
            name="micro_batch",
            type="int64",
            bits=32,
            doc="Which of the step it is, from 0.",
        ),
        DURATION,
        _LOSS,
        _SAMPLES,
        _TOKENS,
        *_MICRO_BATCH_PHASES,
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
