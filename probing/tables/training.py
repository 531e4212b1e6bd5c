"""The tables of the training itself: module calls and steps."""

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
)
from .records import Table, choice, closing, count, flag, number, seconds, text

STAGES = ("forward", "backward", "optimizer", "step", "replay")

TORCH_TRACE = Table(
    name="torch_trace",
    kind="recorded",
    doc="Every call of every torch module, every optimizer step and every whole step, as the"
    " budget allows. An open row (`duration IS NULL`) is a call in progress, or one that"
    " the process died in.",
    columns=(
        STEP,
        text(
            "module",
            "The module's qualified name in its root, such as `blocks.3.attn`, without"
            " wrappers (DDP, FSDP, torch.compile, activation checkpointing); of a shared"
            " module the first name; of a root or an optimizer the class.",
        ),
        choice(
            "stage",
            STAGES,
            "`forward`, `backward`, `optimizer` (its step), `step` (from one end of an"
            " optimizer step to the next) or `replay` (queueing a CUDA graph, named by the"
            " capture's number).",
        ),
        DURATION,
        ALLOCATED,
        text("class", "The class of the module or optimizer."),
        ROOT,
        MODEL,
        count("depth", "How many module calls this one is nested in, 255 at most.", bits=8),
        flag("recomputed", "Whether it ran inside the backward pass (activation checkpointing)."),
        flag("training", "Whether its root was in training mode."),
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

_LOSS, _SAMPLES, _TOKENS = closing(
    number(
        "loss",
        "What `backward()` was called on, unscaled; summed over several tensors and calls. NULL of"
        " a tensor of several elements. On a device it arrives with the next step.",
    ),
    count("samples", "Samples: the first dimension of the model's first input."),
    count(
        "tokens",
        "Tokens: the elements of the model's first input, where that is a matrix of integers.",
    ),
)
_MICRO_BATCH_PHASES = closing(
    seconds("data_wait_s", "Waiting for a DataLoader's next batch."),
    seconds(
        "to_device_s",
        "From the batch's arrival to the call of the model: the copy to the device, and other"
        " work of the script.",
    ),
    seconds("forward_s", "In calls of root modules."),
    seconds(
        "loss_s",
        "From the return of a root module to the next one or to the backward pass: the loss,"
        " unless it is a module.",
    ),
    seconds("backward_s", "In backward passes, recomputation included."),
    seconds(
        "gradient_sync_s",
        "Waiting for other ranks from the start of the backward pass to the optimizer: in"
        " collectives that the training thread waits for, and for DistributedDataParallel from"
        " its reducer's last call to the end of the pass. Not in `backward_s` or"
        " `gradients_s`; a device's waiting is in `device_s` alone.",
    ),
)

STEPS = Table(
    name="steps",
    kind="recorded",
    doc="One row per training step: its loss and what it spent its time on; open while in"
    " progress. Times are the training thread's: queued device work counts where the"
    " thread waits for it. The phases add up to `duration`; a phase that did not occur is"
    " NULL.",
    columns=(
        STEP,
        DURATION,
        _LOSS._replace(
            doc="The mean of the micro-batches' losses; their sum, where each was divided by"
            " their number; of a partial window the mean, undivided; without those whose"
            " gradients were set to None before the step. On a device it arrives with the next"
            " step. NULL where optimizers have losses of their own: see `python.optimizer_steps`."
        ),
        *closing(
            number(
                "first_loss",
                "The first backward pass's loss, which `optimizer.step(closure)` returns;"
                " undivided.",
            ),
            number(
                "last_loss",
                "The same of the last pass, as scripts that accumulate gradients print it.",
            ),
            flag("loss_finite", "Whether all its losses are finite."),
            count(
                "not_finite_since",
                "The first of the steps since the last finite loss, where `loss_finite` is false;"
                " it may not be on record any more.",
            ),
            number(
                "grad_norm",
                "The norm of all gradients before clipping: from the script's `clip_grad_norm_`"
                " where that takes the Euclidean norm of all of them, or most, at once,"
                " else every few steps as the budget allows. Of sharded gradients only the"
                " script's: FSDP2's, and that of FSDP1's own `clip_grad_norm_`, are of all ranks;"
                " what `torch.nn.utils` gives under FSDP1 is of this rank's shards alone.",
            ),
            number("clipped_norm", "The norm after the script's `clip_grad_norm_`."),
            number(
                "lr",
                "The learning rate of the first parameter group of the optimizer that ended it.",
            ),
            _SAMPLES,
            _TOKENS,
            number("tokens_per_s", "`tokens` by `duration`.", unit="1/s"),
            number(
                "flops",
                "Estimated floating-point operations of a model trained on tokens: 6 per token"
                " and non-embedding parameter (arXiv:2001.08361, 2.1).",
            ),
            number(
                "mfu",
                "Model FLOPs utilization: `flops` by `duration` and the device's data-sheet peak"
                " in the precision of autocast, else of the weights (16 bits, TF32 where allowed,"
                " 32 bits); of a MIG slice, its share. FP8 inside modules is not seen. NULL on a"
                " CPU, an unknown device or precision.",
            ),
            count("micro_batches", "How many there were."),
        ),
        *_MICRO_BATCH_PHASES,
        *closing(
            seconds(
                "gradients_s",
                "From the backward pass to the optimizer: unscaling, clipping, explicit"
                " reductions.",
            ),
            seconds("optimizer_s", "In the step of an optimizer."),
            seconds("other_s", "Everything else."),
            seconds(
                "device_s",
                "The accelerator's time from the end of the previous step to the end of this one,"
                " by events in its current stream; it arrives with the next step.",
            ),
            flag(
                "host_bound",
                "Whether the accelerator had finished all earlier work when the host had queued"
                " the step. Always true where the script waits for the device in each step, as by"
                " `loss.item()`.",
            ),
            number("amp_scale", "What a gradient scaler multiplied the loss with."),
            count("skipped", "Optimizer steps that a gradient scaler left out since the last one."),
        ),
        ALLOCATED,
        *closing(
            text(
                "optimizer",
                "The class of the optimizer that ended it; NULL for inference, and for the step"
                " in progress.",
            ),
            count(
                "optimizer_steps", "Its optimizer steps, each a row of `python.optimizer_steps`."
            ),
            text("model", "The models whose parameters were stepped."),
            seconds("cpu_s", "Processor time of the training thread."),
            seconds("process_cpu_s", "Processor time of the whole process."),
            seconds("gc_s", "In Python's garbage collector, in any thread."),
            count("minor_faults", "Page faults of the training thread that needed no device."),
            count(
                "major_faults",
                "Page faults of the training thread that read from a device: swap, or a file on"
                " disk.",
            ),
            count(
                "voluntary_switches",
                "How often the training thread gave the processor up, to wait.",
            ),
            count("involuntary_switches", "How often the kernel preempted the training thread."),
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
    doc="One row per micro-batch, from the wait for its data, or the first module call, to"
    " the end of its backward pass.",
    columns=(
        STEP,
        count("micro_batch", "Which of the step it is, from 0.", bits=32),
        DURATION,
        _LOSS,
        _SAMPLES,
        _TOKENS,
        *closing(
            count(
                "elements",
                "The elements of the tensor that its first root module was given first: lengths"
                " of what are no tokens.",
            ),
        ),
        *_MICRO_BATCH_PHASES,
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
