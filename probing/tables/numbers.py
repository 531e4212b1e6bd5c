"""The tables that say where numbers go wrong: gradients, and values that are not finite.

Rules of this file: see the package. Both are empty until somebody asks for their rows.
"""

from __future__ import annotations

from .columns import MODEL, SEQ, STEP
from .records import Table, choice, closing, count, flag, moment, number, text

_TAKEN = moment("start_ns", "When it was measured.")

GRADIENTS = Table(
    name="gradients",
    kind="recorded",
    doc="One row per parameter and sampled step: its gradient as the optimizer uses it, after"
    " unscaling and clipping; with a closure, or without a torch optimizer, as the last"
    " backward pass left it. Written for `probing PID gradients` (waits for the device,"
    " looks at every element) and every `gradients_every` steps (never waits; looks at"
    " elements only on a CPU, where a norm is not finite). Sparse gradients, Tensor"
    " subclasses such as DTensor, and steps skipped by a gradient scaler are left out.",
    columns=(
        STEP,
        *closing(
            text("parameter", "The parameter's name in its root; else its place in the optimizer."),
            number("norm", "The gradient's Euclidean norm; NaN or infinite where an element is."),
            number(
                "unclipped_norm",
                "The norm before the script's `clip_grad_norm_`, in steps asked for one by one.",
            ),
            number("max_abs", "Its largest finite absolute value."),
            count("nan_count", "Elements that are NaN."),
            count("inf_count", "Elements that are infinite."),
            number("zero_share", "The part of its elements that is 0."),
            number("weight_norm", "The parameter's own norm, before the optimizer's step."),
            number(
                "update_ratio",
                "The norm of the optimizer's change by `weight_norm`, where asked for. NULL where"
                " copies would take over 256 MiB or an eighth of the device's free memory, and"
                " where all weights are 0.",
            ),
            count(
                "passes",
                "Backward passes of the step that gave it, where asked for. NULL with a closure,"
                " and in a step that had made some as it was asked for.",
            ),
            count(
                "kept_passes",
                "How many of those are in it: fewer where gradients were set to None or replaced"
                " between them. NULL where that cannot be told, as where the script changed it.",
            ),
            flag(
                "has_older",
                "Whether what the optimizer used in its step before is in it, too: it was not set"
                " to zero since. NULL in the first step asked for, and where it cannot be told.",
            ),
            text(
                "left_by",
                "The name of another optimizer, as in `python.optimizers`, that has used a backward"
                " pass which went through this parameter to its own, as a generator's goes through"
                " its critic: what it left here was not set to zero, and a pass that only this"
                " one's optimizer has gradients of was added. Else NULL.",
            ),
            number(
                "subnormal_share",
                "The part of it below the smallest normal number, with which a processor is far"
                " slower: of 65,536 elements at most, where asked for. NULL on an accelerator, and"
                " of half precision.",
            ),
            number("weight_subnormal_share", "The same of the parameter."),
            number("state_subnormal_share", "The same of the optimizer's state for it."),
            count("numel", "Elements of the parameter."),
            text("root", "The class of its root module."),
            MODEL,
            text("optimizer", "The class of the optimizer."),
        ),
        _TAKEN,
        SEQ,
    ),
)

NUMERIC_STAGES = ("forward", "backward")
ROLES = ("producer", "propagator", "given")
NUMERIC_KINDS = ("input", "intermediate", "output", "parameter", "loss", "grad", "buffer")

NUMERICS = Table(
    name="numerics",
    kind="recorded",
    doc="Where values became NaN or infinite in the steps that `probing PID arm nan` watched:"
    " the first finding and what followed in its step, at most 64 rows.",
    columns=(
        STEP,
        *closing(
            text("module", "The module's name in its root; NULL for a loss made outside of any."),
            choice("stage", NUMERIC_STAGES, "`forward` or `backward`."),
            choice(
                "role",
                ROLES,
                "`producer`: finite inputs, non-finite results, made by no module inside it."
                " `propagator`: such values came in, or from a module inside. `given`: they came"
                " from outside of any module, such as the data; a `parameter` or `buffer` held them"
                " before the watch began.",
            ),
            choice(
                "what",
                NUMERIC_KINDS,
                "What is not finite: an `input` or `output`, an `intermediate` value handed to a"
                " module inside, a `parameter`, a `buffer` or the `loss`. In a backward pass, the"
                " gradient of that input (`grad`), intermediate value or parameter.",
            ),
            text("tensor", "Which one, such as `0` for the first argument, or `weight`."),
            count("nan_count", "Its elements that are NaN."),
            count("inf_count", "Its elements that are infinite."),
            number("share", "The part of its elements that is either."),
            number("finite_max", "Its largest finite absolute value."),
            text("shape", "Its type and sizes, such as `float16[8,128]`."),
            text("given", "Types and sizes of the module's inputs, or gradients."),
            number("given_max", "The largest absolute value in those inputs."),
            text("class", "The module's class."),
            text("root", "The class of its root."),
            MODEL,
            count("arming", "The number of the arming that found it, from 1."),
        ),
        _TAKEN,
        SEQ,
    ),
)
