"""The tables that say where numbers go wrong: gradients, and values that are not finite.

Rules of this file: see the package. Both are empty until somebody asks for their rows.
"""

from __future__ import annotations

from .columns import MODEL, SEQ, STEP
from .records import Column, Table


def _number(name: str, doc: str) -> Column:
    """A column of numbers that are measured after the row is opened."""
    return Column(name=name, type="float64", closing=True, doc=doc)


def _count(name: str, doc: str) -> Column:
    """A column of counts that are made after the row is opened."""
    return Column(name=name, type="int64", closing=True, doc=doc)


def _text(name: str, doc: str) -> Column:
    """A column of names that are written when the row is completed."""
    return Column(name=name, type="text", closing=True, doc=doc)


_TAKEN = Column(name="start_ns", type="time", unit="ns", doc="When it was measured.")

GRADIENTS = Table(
    name="gradients",
    kind="recorded",
    doc="One row per parameter and sampled step: its gradient as the optimizer is about to use it,"
    " so after unscaling and clipping; of a step with a closure, and without any optimizer of"
    " torch, as its last backward pass has left it. Written for the steps that `probing PID"
    " gradients` asks for, and every `gradients_every` steps where that setting is not 0. In the"
    " first case the device is waited for and every element is looked at; in the second it is never"
    " waited for, and elements are looked at only on a CPU, where a norm is not finite. Sparse"
    " gradients and subclasses of Tensor, such as DTensor, are left out; the command counts them. A"
    " step that a gradient scaler leaves out has no rows.",
    columns=(
        STEP,
        _text(
            "parameter",
            "The parameter's name in its root, such as `blocks.3.attn.qkv.weight`; in no known"
            " module, its place in the optimizer.",
        ),
        _number("norm", "The gradient's Euclidean norm; NaN or infinite where an element is."),
        _number(
            "unclipped_norm",
            "The same before `clip_grad_norm_` of the script; NULL where it does not clip, and in"
            " steps that were not asked for one by one.",
        ),
        _number("max_abs", "Its largest finite absolute value; NULL where it was not looked for."),
        _count("nan_count", "Elements that are NaN; NULL where none was looked for."),
        _count("inf_count", "Elements that are infinite; NULL where none was looked for."),
        _number("zero_share", "The part of its elements that is 0; NULL where not looked for."),
        _number("weight_norm", "The parameter's own norm, before the optimizer's step."),
        _number(
            "update_ratio",
            "The norm of what the optimizer's step changed, by `weight_norm`. NULL where it was not"
            " asked for, where the copies would take more than 256 MiB or an eighth of the device's"
            " free memory, and where the weights are all 0.",
        ),
        _count("numel", "Elements of the parameter."),
        _text("root", "The class of the root module it belongs to."),
        MODEL._replace(closing=True),
        _text("optimizer", "The class of the optimizer; NULL where none of torch steps."),
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
    doc="Where values became NaN or infinite, in the steps that `probing PID arm nan` watched: the"
    " first finding and what followed in the rest of its step, 64 rows at most, in order.",
    columns=(
        STEP,
        _text("module", "The module's name in its root; NULL for a loss made outside of any."),
        Column(
            name="stage",
            type="enum",
            values=NUMERIC_STAGES,
            closing=True,
            doc="`forward` or `backward`.",
        ),
        Column(
            name="role",
            type="enum",
            values=ROLES,
            closing=True,
            doc="`producer`: what it was given was finite, what it made is not, and no module in it"
            " did that. `propagator`: it was given such values, or one inside it made them."
            " `given`: they came from outside of any module, such as from the data; of a"
            " `parameter`: it held them before the watch began.",
        ),
        Column(
            name="what",
            type="enum",
            values=NUMERIC_KINDS,
            closing=True,
            doc="What is not finite: an `input` or `output` of the module, an `intermediate` value"
            " that its own code hands to a module inside it, a `parameter` or buffer of it, or the"
            " `loss`. Backwards, the gradient of such an input (`grad`), intermediate value or"
            " parameter.",
        ),
        _text("tensor", "Which one, such as `0` for the first argument, or `weight`."),
        _count("nan_count", "Its elements that are NaN."),
        _count("inf_count", "Its elements that are infinite."),
        _number("share", "The part of its elements that is either."),
        _number("finite_max", "Its largest finite absolute value; NULL where none is finite."),
        _text("shape", "Its type and sizes, such as `float16[8,128]`."),
        _text("given", "Types and sizes of what the module was given: inputs, or gradients."),
        _number("given_max", "The largest absolute value in those inputs; NULL for gradients."),
        _text("class", "The module's class."),
        _text("root", "The class of its root."),
        MODEL._replace(closing=True),
        _count("arming", "The number of the arming that found it, from 1."),
        _TAKEN,
        SEQ,
    ),
)
