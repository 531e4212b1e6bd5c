"""The tables of what is trained: models, their modules, and the optimizers' parameter groups.

Rules of this file: see the package.
"""

from __future__ import annotations

from .records import Table, count, flag, number, size, text

_MODEL_ID = count(
    "model_id",
    "The root module's number: those that are alive, counted from 0 as they were first called.",
)
_NAMED = (
    "the variable that held it when it was first called, where that is known, else its class; with"
    " a number for the second of a name and those that follow"
)
_MODEL = text("model", "The name of the root, as `python.models` has it.")
_CLASS = text("class", "The module's class.")
_TRAINING = flag("training", "Whether it is in training mode.")
_TRAINABLE = count("trainable", "How many of `parameters` require gradients.")
_BUFFERS = count("buffers", "How many numbers its buffers hold.")
_BUFFER_BYTES = size("buffer_bytes", "What they take.")
_DTYPE = text(
    "dtype",
    "The types of its parameters, else of its buffers, separated by commas; NULL without any.",
)
_DEVICE = text("device", "The devices that those are on, separated by commas; NULL without any.")

MODELS = Table(
    name="models",
    kind="live",
    doc="Every root module that has been called since the agent came and is still alive: models,"
    " and also what else is called from outside of any module, such as a loss function. Where none"
    " has been called, those with parameters that the process holds.",
    columns=(
        _MODEL_ID,
        _MODEL._replace(doc=f"Its name: {_NAMED}."),
        text("class", "The class of the module inside all wrappers."),
        text(
            "wrappers",
            "The classes of the wrappers around it (DDP, FSDP, torch.compile), outermost first,"
            " separated by ` > `; NULL without any.",
        ),
        count("modules", "How many modules it consists of, itself too."),
        count(
            "parameters",
            "How many numbers its parameters hold; a shared parameter counts once. NULL while one"
            " of them has no shape yet.",
        ),
        _TRAINABLE,
        number("trainable_share", "`trainable` divided by `parameters`; NULL without parameters."),
        size("parameter_bytes", "What the parameters take."),
        _BUFFERS,
        _BUFFER_BYTES,
        _DTYPE,
        _DEVICE,
        _TRAINING,
        flag("compiled", "Whether it, or a part of it, goes through torch.compile."),
    ),
)

MODULES = Table(
    name="modules",
    kind="live",
    doc="Every module of every root in `python.models`. `module` and `root` join it with"
    " `python.torch_trace`. From `calls` on, the columns are what was observed in one forward call"
    " of the root: a question that names one of them waits for the next call, ten seconds at most."
    " They are NULL where none came, inside what torch.compile has compiled, and where a module was"
    " not called.",
    columns=(
        text("module", "The qualified name in its root, as `python.torch_trace` has it."),
        _CLASS,
        text("root", "The class of the root, inside all wrappers."),
        _MODEL,
        _MODEL_ID,
        count(
            "depth", "How many names deep it stands in its root; 0 for the root and its wrappers."
        ),
        count(
            "parameters",
            "How many numbers the parameters of it and all below it hold; a shared parameter"
            " counts once. NULL while one of them has no shape yet.",
        ),
        count("own_parameters", "How many of them are its own and not those of a module below."),
        _TRAINABLE,
        size("parameter_bytes", "What `parameters` take."),
        _BUFFERS,
        _BUFFER_BYTES,
        _DTYPE,
        _DEVICE,
        _TRAINING,
        flag("compiled", "Whether torch.compile has compiled it, or a module around it."),
        count(
            "calls",
            "How often it was called in the observed forward; a shared module more than once.",
        ),
        text(
            "input_shapes",
            "The shapes of the tensors that its most recent call was given, such as `[8, 128]`;"
            " named where they were given by name or stood in a dictionary.",
        ),
        text("input_dtypes", "The types of those tensors."),
        size(
            "input_bytes",
            "What they take. A module that returns many times as much expands its batch.",
        ),
        text(
            "output_shapes",
            "The shapes of the tensors that this call returned, also out of tuples, dictionaries"
            " and dataclasses.",
        ),
        text("output_dtypes", "The types of those tensors."),
        size("output_bytes", "What the returned tensors take."),
        count(
            "flops",
            "Floating-point operations of all its calls in that forward, a multiplication and an"
            " addition counted as two: by formula for linear, convolution, recurrent, attention,"
            " embedding and normalisation layers; for every other module the sum over the calls"
            " inside it and over the functions that it calls itself: fused attention, linear,"
            " matmul and its kin. NULL where no formula is known.",
        ),
        flag(
            "flops_is_lower_bound",
            "Whether `flops` may be too small: the module's own code, such as the operator `@`, or"
            " a module inside it for which no formula is known, may compute more.",
        ),
        count("observed_step", "The training step in which it was observed; NULL when it was not."),
    ),
)

OBSERVED_COLUMNS = frozenset(
    column.name for column in MODULES.columns[[c.name for c in MODULES.columns].index("calls") :]
)
"""The columns of python.modules that only a forward call of the root can show."""

OPTIMIZERS = Table(
    name="optimizers",
    kind="live",
    doc="One row per parameter group of every optimizer that has stepped since the agent came and"
    " is still alive; where none has stepped, of those that the process holds.",
    columns=(
        count(
            "optimizer_id",
            "The optimizer's number: those that are alive, counted from 0 as they first stepped.",
        ),
        text("optimizer", "The optimizer's class."),
        text(
            "name",
            "What it is called in `python.optimizer_steps` and by `act`: the variable that held it"
            " when it first stepped, where that is known, else its class; with a number for the"
            " second of a name and those that follow.",
        ),
        count("param_group", "The group's place in `param_groups`."),
        number(
            "lr",
            "The learning rate now; NULL where it is a tensor on an accelerator, which cannot be"
            " read without waiting for it.",
        ),
        number("weight_decay", "NULL where it has none, as with `lr`."),
        text(
            "betas",
            "Adam's and its relatives' decay rates, such as `0.9, 0.999`; NULL without any.",
        ),
        number("momentum", "SGD's momentum; NULL where it has none."),
        number(
            "clip",
            "The norm that gradients are clipped to: by the optimizer itself (`max_grad_norm` of"
            " the group), else by the script's last call of `clip_grad_norm_`, where that took"
            " this group's parameters, or all of the optimizer's; NULL where neither is so.",
        ),
        count("tensors", "How many parameter tensors are in the group."),
        count("parameters", "How many numbers they hold; NULL while one of them has no shape yet."),
        _TRAINABLE,
        size("parameter_bytes", "What they take."),
        size(
            "state_bytes", "What the optimizer keeps for them in tensors, such as Adam's moments."
        ),
        _DTYPE._replace(doc="The types of the parameters, separated by commas."),
        _DEVICE._replace(doc="The devices that they are on, separated by commas."),
    ),
)
