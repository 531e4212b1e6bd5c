"""The tables that say where numbers go wrong: gradients, and values that are not finite.

Rules of this file: see the package. Both are empty until somebody asks for their rows.
"""

from __future__ import annotations

from .columns import MODEL, SEQ, STEP
from .records import Table, choice, count, moment, number, text

_TAKEN = moment("start_ns", "When it was measured.")

GRADIENTS = Table(
    name="gradients",
    kind="recorded",
    doc="One row per parameter and sampled step: its gradient as the optimizer uses it, after"
    " unscaling and clipping; with a closure, or without a torch optimizer, as the last"
    " backward pass left it. Written for steps that `probing PID gradients` asks for (it"
    " waits for the device and looks at every element), and every `gradients_every` steps"
    " (never waits; looks at elements only on a CPU, where a norm is not finite). Sparse"
    " gradients and Tensor subclasses such as DTensor are left out; the command counts them."
    " A step skipped by a gradient scaler has no rows.",
    columns=(
        STEP,
        text(
            "parameter",
            "The parameter's name in its root, such as `blocks.3.attn.qkv.weight`; else its"
            " place in the optimizer.",
            closing=True,
        ),
        number(
            "norm",
            "The gradient's Euclidean norm; NaN or infinite where an element is.",
            closing=True,
        ),
        number(
            "unclipped_norm",
            "The norm before the script's `clip_grad_norm_`; NULL without clipping, and in steps"
            " that were not asked for one by one.",
            closing=True,
        ),
        number(
            "max_abs",
            "Its largest finite absolute value; NULL where it was not looked for.",
            closing=True,
        ),
        count("nan_count", "Elements that are NaN; NULL where none was looked for.", closing=True),
        count(
            "inf_count", "Elements that are infinite; NULL where none was looked for.", closing=True
        ),
        number(
            "zero_share",
            "The part of its elements that is 0; NULL where not looked for.",
            closing=True,
        ),
        number(
            "weight_norm", "The parameter's own norm, before the optimizer's step.", closing=True
        ),
        number(
            "update_ratio",
            "The norm of the optimizer's change by `weight_norm`. NULL where not asked for,"
            " where the copies would take over 256 MiB or an eighth of the device's free memory,"
            " and where all weights are 0.",
            closing=True,
        ),
        count(
            "passes",
            "Backward passes of the step that gave it; fewer where it was asked for in the middle"
            " of one. NULL where not asked for, without any, and with a closure.",
            closing=True,
        ),
        count(
            "kept_passes",
            "How many of those are in it: fewer than `passes` where gradients were set to None or"
            " replaced between them. NULL as `passes`, and where it cannot be told, as of one that"
            " the script has changed or put there itself.",
            closing=True,
        ),
        number(
            "subnormal_share",
            "The part of it that is below the smallest normal number, with which a processor"
            " computes far more slowly: of 65,536 elements at most. NULL where not asked for, on an"
            " accelerator, and of half precision.",
            closing=True,
        ),
        number("weight_subnormal_share", "The same of the parameter.", closing=True),
        number(
            "state_subnormal_share",
            "The same of what the optimizer keeps for it, such as Adam's moments.",
            closing=True,
        ),
        count("numel", "Elements of the parameter.", closing=True),
        text("root", "The class of the root module it belongs to.", closing=True),
        MODEL._replace(closing=True),
        text(
            "optimizer", "The class of the optimizer; NULL where none of torch steps.", closing=True
        ),
        _TAKEN,
        SEQ,
    ),
)

NUMERIC_STAGES = ("forward", "backward")
ROLES = ("producer", "propagator", "given")
NUMERIC_KINDS = ("input", "intermediate", "output", "parameter", "loss", "grad")

NUMERICS = Table(
    name="numerics",
    kind="recorded",
    doc="Where values became NaN or infinite in the steps that `probing PID arm nan` watched:"
    " the first finding and what followed in its step, at most 64 rows, in order.",
    columns=(
        STEP,
        text(
            "module",
            "The module's name in its root; NULL for a loss made outside of any.",
            closing=True,
        ),
        choice("stage", NUMERIC_STAGES, "`forward` or `backward`.", closing=True),
        choice(
            "role",
            ROLES,
            "`producer`: finite inputs, non-finite results, made by no module inside it."
            " `propagator`: it was given such values, or a module inside it made them. `given`:"
            " they came from outside of any module, such as the data; a `parameter` held them"
            " before the watch began.",
            closing=True,
        ),
        choice(
            "what",
            NUMERIC_KINDS,
            "What is not finite: an `input` or `output` of the module, an `intermediate` value"
            " that its code hands to a module inside it, a `parameter` or buffer, or the `loss`."
            " In a backward pass, the gradient of that input (`grad`), intermediate value or"
            " parameter.",
            closing=True,
        ),
        text("tensor", "Which one, such as `0` for the first argument, or `weight`.", closing=True),
        count("nan_count", "Its elements that are NaN.", closing=True),
        count("inf_count", "Its elements that are infinite.", closing=True),
        number("share", "The part of its elements that is either.", closing=True),
        number(
            "finite_max",
            "Its largest finite absolute value; NULL where none is finite.",
            closing=True,
        ),
        text("shape", "Its type and sizes, such as `float16[8,128]`.", closing=True),
        text(
            "given",
            "Types and sizes of what the module was given: inputs, or gradients.",
            closing=True,
        ),
        number(
            "given_max",
            "The largest absolute value in those inputs; NULL for gradients.",
            closing=True,
        ),
        text("class", "The module's class.", closing=True),
        text("root", "The class of its root.", closing=True),
        MODEL._replace(closing=True),
        count("arming", "The number of the arming that found it, from 1.", closing=True),
        _TAKEN,
        SEQ,
    ),
)
