"""The tables of what is trained: models, their modules, and the optimizers' parameter groups.

Rules of this file: see the package.
"""

from __future__ import annotations

from .records import Table, choice, count, flag, number, size, text

_MODEL_ID = count(
    "model_id",
    "The root module's number: those that are alive, counted from 0 as they were first called.",
)
_NAMED = (
    "the variable that held it at its first call, else its class; numbered where several share a"
    " name"
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
    doc="Every root module called since the agent came and still alive: models, and others"
    " called from outside of any module, such as a loss function. Where none was called,"
    " those with parameters that the process holds.",
    columns=(
        _MODEL_ID,
        _MODEL._replace(doc=f"Its name: {_NAMED}."),
        text("class", "The class of the module inside all wrappers."),
        text(
            "wrappers",
            "The classes of its wrappers (DDP, FSDP, torch.compile), outermost first, separated"
            " by ` > `; NULL without any.",
        ),
        count("modules", "How many modules it consists of, itself too."),
        count(
            "parameters",
            "Its number of parameters, shared ones counted once. NULL while one has no shape yet.",
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
    doc="Every module of every root in `python.models`; `module` and `root` join it with"
    " `python.torch_trace`. The columns from `calls` on were observed in one forward call of"
    " the root: a question that names one waits for the next call, ten seconds at most. They"
    " are NULL where none came, inside compiled code, and where a module was not called.",
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
            "The number of parameters in it and below, shared ones counted once. NULL while one"
            " has no shape yet.",
        ),
        count("own_parameters", "How many of them are its own and not those of a module below."),
        _TRAINABLE,
        size("parameter_bytes", "What `parameters` take."),
        _BUFFERS,
        _BUFFER_BYTES,
        _DTYPE,
        _DEVICE,
        _TRAINING,
        number(
            "dropout", "What part a dropout leaves out in training mode; NULL of any other module."
        ),
        flag("compiled", "Whether torch.compile has compiled it, or a module around it."),
        count(
            "calls",
            "How often it was called in the observed forward; a shared module more than once.",
        ),
        text(
            "input_shapes",
            "The shapes of the tensors that its last call was given, such as `[8, 128]`; with"
            " names where they had some.",
        ),
        text("input_dtypes", "The types of those tensors."),
        size(
            "input_bytes",
            "What they take. A module that returns many times as much expands its batch.",
        ),
        text(
            "input_layout",
            "How those of them with four dimensions lie in memory: `contiguous`, `channels_last`,"
            " `either` where that is the same, as with one channel, `strided`. NULL without any.",
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
            "Floating-point operations of its calls in that forward, a multiply-add counted as"
            " two: by formula for linear, convolution, recurrent, attention, embedding and"
            " normalisation layers, else the sum over the modules inside and over its own calls"
            " of fused attention, linear, matmul and the like. NULL where no formula is known.",
        ),
        flag(
            "flops_is_lower_bound",
            "Whether `flops` may be too small: its own code, such as the operator `@`, or a"
            " module inside without a formula may compute more.",
        ),
        count("observed_step", "The training step in which it was observed; NULL when it was not."),
    ),
)

OBSERVED_COLUMNS = frozenset(
    column.name for column in MODULES.columns[[c.name for c in MODULES.columns].index("calls") :]
)
"""The columns of python.modules that only a forward call of the root can show."""

PARAMETERS = Table(
    name="parameters",
    kind="live",
    doc="Every parameter of every root in `python.models`, and those that only an optimizer has:"
    " what trains it. Nothing of its data is read.",
    columns=(
        _MODEL,
        text("root", "The class of the root; NULL of what is in no model."),
        text(
            "parameter",
            "Its qualified name in the root; of what is in no model its place in the optimizer.",
        ),
        count("numel", "How many numbers it holds; NULL while it has no shape yet."),
        size("bytes", "What they take."),
        text("dtype", "Its type."),
        text("device", "Where it is."),
        text(
            "layout",
            "How it lies in memory, of four dimensions, as `input_layout` of python.modules has it;"
            " else NULL.",
        ),
        flag("trainable", "Whether it requires a gradient."),
        flag(
            "has_gradient",
            "Whether it holds one right now: between `zero_grad` and the backward pass none does.",
        ),
        count(
            "gradient_version",
            "How often that gradient was changed in place since it was made: a backward pass does"
            " so once it is there, as do zeroing, unscaling and clipping. NULL without one.",
        ),
        count(
            "version",
            "How often its values were changed in place, as torch counts: an optimizer's step does"
            " so once or more.",
        ),
        count("optimizers", "How many optimizers have it."),
        text("optimizer", "Their names, as in `python.optimizers`; NULL without any."),
        flag(
            "has_state",
            "Whether one of them keeps state for it: Adam and SGD with momentum do from the first"
            " step in which it has a gradient. NULL without an optimizer.",
        ),
        size("state_bytes", "What that state takes."),
    ),
)

IMPLEMENTATIONS = ("fused", "foreach", "for-loop", "default")

OPTIMIZERS = Table(
    name="optimizers",
    kind="live",
    doc="One row per parameter group of every live optimizer that has stepped since the agent"
    " came; where none has, of those that the process holds.",
    columns=(
        count(
            "optimizer_id",
            "The optimizer's number: those that are alive, counted from 0 as they first stepped.",
        ),
        text("optimizer", "The optimizer's class."),
        text(
            "name",
            "Its name in `python.optimizer_steps` and for `act`: the variable that held it at"
            " its first step, else its class; numbered where several share a name.",
        ),
        count("param_group", "The group's place in `param_groups`."),
        number(
            "lr",
            "The learning rate now; NULL where it is a tensor on an accelerator, which would"
            " have to be waited for.",
        ),
        number("weight_decay", "NULL where it has none, as with `lr`."),
        text(
            "betas",
            "Adam's and its relatives' decay rates, such as `0.9, 0.999`; NULL without any.",
        ),
        number("momentum", "SGD's momentum; NULL where it has none."),
        number(
            "clip",
            "The norm that gradients are clipped to: the group's `max_grad_norm`, else that of"
            " the script's last `clip_grad_norm_` on this group's or all of the optimizer's"
            " parameters; NULL without either.",
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
        count(
            "skipped",
            "Steps of any optimizer that a gradient scaler has left out since the last that was"
            " made; NULL where it has left out none.",
        ),
        choice(
            "implementation",
            IMPLEMENTATIONS,
            "How it steps: `fused`, in one kernel for all tensors of a group; `foreach`, in a call"
            " for each operation; `for-loop`, in one for each operation and tensor; `default`:"
            " torch chooses, which is `foreach` on accelerators and `for-loop` on a CPU. NULL where"
            " it has no such option.",
        ),
    ),
)
