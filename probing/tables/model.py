"""The tables of what is trained: models, their modules, and the optimizers' parameter groups.

Rules of this file: see the package.
"""

from __future__ import annotations

from .records import Column, Table

_MODEL_ID = Column(
    name="model_id",
    type="int64",
    doc="The root module's number: those that are alive, counted from 0 as they were first called.",
)
_NAMED = (
    "the variable that held it when it was first called, where that is known, else its class; with"
    " a number for the second of a name and those that follow"
)
_MODEL = Column(name="model", type="text", doc="The name of the root, as `python.models` has it.")
_CLASS = Column(name="class", type="text", doc="The module's class.")
_TRAINING = Column(name="training", type="bool", doc="Whether it is in training mode.")
_TRAINABLE = Column(
    name="trainable",
    type="int64",
    doc="How many of `parameters` require gradients.",
)
_BUFFERS = Column(name="buffers", type="int64", doc="How many numbers its buffers hold.")
_BUFFER_BYTES = Column(name="buffer_bytes", type="int64", unit="bytes", doc="What they take.")
_DTYPE = Column(
    name="dtype",
    type="text",
    doc="The types of its parameters, else of its buffers, separated by commas; NULL without any.",
)
_DEVICE = Column(
    name="device",
    type="text",
    doc="The devices that those are on, separated by commas; NULL without any.",
)

MODELS = Table(
    name="models",
    kind="live",
    doc="Every root module that has been called since the agent came and is still alive: models,"
    " and also what else is called from outside of any module, such as a loss function. Where none"
    " has been called, those with parameters that the process holds.",
    columns=(
        _MODEL_ID,
        _MODEL._replace(doc=f"Its name: {_NAMED}."),
        Column(name="class", type="text", doc="The class of the module inside all wrappers."),
        Column(
            name="wrappers",
            type="text",
            doc="The classes of the wrappers around it (DDP, FSDP, torch.compile), outermost first,"
            " separated by ` > `; NULL without any.",
        ),
        Column(name="modules", type="int64", doc="How many modules it consists of, itself too."),
        Column(
            name="parameters",
            type="int64",
            doc="How many numbers its parameters hold; a shared parameter counts once. NULL while"
            " one of them has no shape yet.",
        ),
        _TRAINABLE,
        Column(
            name="trainable_share",
            type="float64",
            doc="`trainable` divided by `parameters`; NULL without parameters.",
        ),
        Column(name="parameter_bytes", type="int64", unit="bytes", doc="What the parameters take."),
        _BUFFERS,
        _BUFFER_BYTES,
        _DTYPE,
        _DEVICE,
        _TRAINING,
        Column(
            name="compiled",
            type="bool",
            doc="Whether it, or a part of it, goes through torch.compile.",
        ),
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
        Column(
            name="module",
            type="text",
            doc="The qualified name in its root, as `python.torch_trace` has it.",
        ),
        _CLASS,
        Column(name="root", type="text", doc="The class of the root, inside all wrappers."),
        _MODEL,
        _MODEL_ID,
        Column(
            name="depth",
            type="int64",
            doc="How many names deep it stands in its root; 0 for the root and its wrappers.",
        ),
        Column(
            name="parameters",
            type="int64",
            doc="How many numbers the parameters of it and all below it hold; a shared parameter"
            " counts once. NULL while one of them has no shape yet.",
        ),
        Column(
            name="own_parameters",
            type="int64",
            doc="How many of them are its own and not those of a module below.",
        ),
        _TRAINABLE,
        Column(name="parameter_bytes", type="int64", unit="bytes", doc="What `parameters` take."),
        _BUFFERS,
        _BUFFER_BYTES,
        _DTYPE,
        _DEVICE,
        _TRAINING,
        Column(
            name="compiled",
            type="bool",
            doc="Whether torch.compile has compiled it, or a module around it.",
        ),
        Column(
            name="calls",
            type="int64",
            doc="How often it was called in the observed forward; a shared module more than once.",
        ),
        Column(
            name="input_shapes",
            type="text",
            doc="The shapes of the tensors that its most recent call was given, such as `[8, 128]`;"
            " named where they were given by name or stood in a dictionary.",
        ),
        Column(name="input_dtypes", type="text", doc="The types of those tensors."),
        Column(
            name="input_bytes",
            type="int64",
            unit="bytes",
            doc="What they take. A module that returns many times as much expands its batch.",
        ),
        Column(
            name="output_shapes",
            type="text",
            doc="The shapes of the tensors that this call returned, also out of tuples,"
            " dictionaries and dataclasses.",
        ),
        Column(name="output_dtypes", type="text", doc="The types of those tensors."),
        Column(
            name="output_bytes",
            type="int64",
            unit="bytes",
            doc="What the returned tensors take.",
        ),
        Column(
            name="flops",
            type="int64",
            doc="Floating-point operations of all its calls in that forward, a multiplication and"
            " an addition counted as two: by formula for linear, convolution, recurrent, attention,"
            " embedding and normalisation layers; for every other module the sum over the calls"
            " inside it and over the functions that it calls itself: fused attention, linear,"
            " matmul and its kin. NULL where no formula is known.",
        ),
        Column(
            name="flops_is_lower_bound",
            type="bool",
            doc="Whether `flops` may be too small: the module's own code, such as the operator `@`,"
            " or a module inside it for which no formula is known, may compute more.",
        ),
        Column(
            name="observed_step",
            type="int64",
            doc="The training step in which it was observed; NULL when it was not.",
        ),
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
        Column(
            name="optimizer_id",
            type="int64",
            doc="The optimizer's number: those that are alive, counted from 0 as they first"
            " stepped.",
        ),
        Column(name="optimizer", type="text", doc="The optimizer's class."),
        Column(
            name="name",
            type="text",
            doc="What it is called in `python.optimizer_steps` and by `act`: the variable that held"
            " it when it first stepped, where that is known, else its class; with a number for the"
            " second of a name and those that follow.",
        ),
        Column(name="param_group", type="int64", doc="The group's place in `param_groups`."),
        Column(
            name="lr",
            type="float64",
            doc="The learning rate now; NULL where it is a tensor on an accelerator, which cannot"
            " be read without waiting for it.",
        ),
        Column(name="weight_decay", type="float64", doc="NULL where it has none, as with `lr`."),
        Column(
            name="betas",
            type="text",
            doc="Adam's and its relatives' decay rates, such as `0.9, 0.999`; NULL without any.",
        ),
        Column(name="momentum", type="float64", doc="SGD's momentum; NULL where it has none."),
        Column(
            name="clip",
            type="float64",
            doc="The norm that gradients are clipped to: by the optimizer itself (`max_grad_norm`"
            " of the group), else by the script's last call of `clip_grad_norm_`, where that took"
            " this group's parameters, or all of the optimizer's; NULL where neither is so.",
        ),
        Column(name="tensors", type="int64", doc="How many parameter tensors are in the group."),
        Column(
            name="parameters",
            type="int64",
            doc="How many numbers they hold; NULL while one of them has no shape yet.",
        ),
        _TRAINABLE,
        Column(name="parameter_bytes", type="int64", unit="bytes", doc="What they take."),
        Column(
            name="state_bytes",
            type="int64",
            unit="bytes",
            doc="What the optimizer keeps for them in tensors, such as Adam's moments.",
        ),
        _DTYPE._replace(doc="The types of the parameters, separated by commas."),
        _DEVICE._replace(doc="The devices that they are on, separated by commas."),
    ),
)
