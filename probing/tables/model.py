"""The tables of what is trained: models, their modules, and the optimizers' parameter groups."""

from __future__ import annotations

from .records import Table, choice, count, flag, number, size, text

_MODEL_ID = count(
    "model_id",
    "The root module's number among those alive, from 0, as first called.",
)
_NAMED = (
    "the variable that held it at its first call, else its class; numbered where several share a"
    " name"
)
_MODEL = text("model", "The name of the root, as in `python.models`.")
_CLASS = text("class", "The module's class.")
_TRAINING = flag("training", "Whether it is in training mode.")
_TRAINABLE = count("trainable", "How many of `parameters` require gradients.")
_BUFFERS = count("buffers", "Number of elements in its buffers.")
_BUFFER_BYTES = size("buffer_bytes", "What they take.")
_DTYPE = text("dtype", "The types of its parameters, else of its buffers.")
_DEVICE = text("device", "The devices of those.")

MODELS = Table(
    name="models",
    kind="live",
    doc="Every root module called since the agent came and still alive, such as models and"
    " loss functions. Where none was called, those with parameters that the process holds.",
    columns=(
        _MODEL_ID,
        _MODEL._replace(doc=f"Its name: {_NAMED}."),
        text("class", "The class of the module inside all wrappers."),
        text(
            "wrappers",
            "The classes of its wrappers (DDP, FSDP, torch.compile), outermost first,"
            " separated by ` > `.",
        ),
        count("modules", "How many modules it consists of, itself too."),
        count(
            "parameters",
            "Its number of parameters, shared ones counted once; NULL while one has no shape yet.",
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
    " `python.torch_trace`. The columns from `calls` on are observed in the next forward"
    " call of the root, awaited for ten seconds; NULL without one, inside compiled code,"
    " and where a module was not called.",
    columns=(
        text("module", "The qualified name in its root."),
        _CLASS,
        text("root", "The class of the root, inside all wrappers."),
        _MODEL,
        _MODEL_ID,
        count("depth", "How many names deep it stands in its root, from 0."),
        count(
            "parameters",
            "The number of parameters in it and below, shared ones counted once; NULL while"
            " one has no shape yet.",
        ),
        count("own_parameters", "How many of them are its own."),
        _TRAINABLE,
        size("parameter_bytes", "What `parameters` take."),
        _BUFFERS,
        _BUFFER_BYTES,
        _DTYPE,
        _DEVICE,
        _TRAINING,
        number("dropout", "What part a dropout leaves out in training mode."),
        count(
            "bad_statistics",
            "How many numbers of its running statistics (`running_mean`, `running_var`) are NaN or"
            " infinite: evaluations use them, and the training does not. NULL without any, and on"
            " an accelerator, where they are not read.",
        ),
        flag("compiled", "Whether torch.compile has compiled it, or a module around it."),
        count("calls", "How often it was called in that forward."),
        text(
            "input_shapes",
            "The shapes of the tensors given to its last call, such as `[8, 128]`, with names"
            " where they had some.",
        ),
        text("input_dtypes", "The types of those tensors."),
        size("input_bytes", "What they take."),
        text(
            "input_layout",
            "How those with four dimensions lie in memory: `contiguous`, `channels_last`,"
            " `either` where that is the same, `strided`.",
        ),
        text(
            "output_shapes",
            "The shapes of the tensors returned, also out of tuples, dictionaries and dataclasses.",
        ),
        text("output_dtypes", "The types of those tensors."),
        size("output_bytes", "What the returned tensors take."),
        count(
            "flops",
            "Floating-point operations of its calls in that forward, a multiply-add counted"
            " as two: by formula for linear, convolution, recurrent, attention, embedding and"
            " normalisation layers, else the sum of the modules inside and its own fused"
            " attention, linear, matmul and the like.",
        ),
        flag(
            "flops_is_lower_bound",
            "Whether `flops` may be too small: its own code, or a module inside without a"
            " formula, may compute more.",
        ),
        count("observed_step", "The training step in which it was observed."),
    ),
)

OBSERVED_COLUMNS = frozenset(
    column.name for column in MODULES.columns[[c.name for c in MODULES.columns].index("calls") :]
)
"""The columns of python.modules that only a forward call of the root can show."""

HOOKS = Table(
    name="hooks",
    kind="live",
    doc="The program's hooks on the modules of `python.models` and on their parameters: one row"
    " per function and module, without the agent's own.",
    columns=(
        _MODEL,
        text("module", "The qualified name of the module in its root."),
        _CLASS,
        text("place", "Where they hang: `forward_hooks`, `backward_hooks`, `weight's hooks`, ..."),
        text("function", "The qualified name of the function; the class of another object."),
        text("file", "Its source file; NULL of what has none."),
        count("lineno", "The line where it begins."),
        count("hooks", "How often it hangs there."),
        count(
            "objects",
            "How many different objects these are: closures of one function are, what was"
            " registered again is not.",
        ),
    ),
)

PARAMETERS = Table(
    name="parameters",
    kind="live",
    doc="Every parameter of every root in `python.models`, of what a module of it keeps in a plain"
    " list, tuple or dictionary, and those that only an optimizer has. Its data is not read.",
    columns=(
        _MODEL,
        text("root", "The class of the root; NULL of what is in no model."),
        text(
            "parameter",
            "Its qualified name in the root, as `experts[0].weight` of what is in a list; else its"
            " place in the optimizer.",
        ),
        count("numel", "Number of elements in it; NULL while it has no shape yet."),
        size("bytes", "What they take."),
        text("dtype", "Its type."),
        text("device", "Where it is."),
        text(
            "layout",
            "How it lies in memory, of four dimensions, as `input_layout` of python.modules.",
        ),
        flag("trainable", "Whether it requires a gradient."),
        flag(
            "has_gradient",
            "Whether it holds one as a step ends, or where the training makes no progress. NULL"
            " where it goes on and no step ends in time: within two seconds, or eight where the"
            " last step took as long; who asks again is told what was there as a longer one ended."
            " And where another thread trains that is at work on its own, or has none now.",
        ),
        count(
            "gradient_version",
            "How often that gradient was changed in place: by backward passes once it is"
            " there, zeroing, unscaling and clipping.",
        ),
        count(
            "version",
            "How often its values were changed in place: at least once by an optimizer's step.",
        ),
        count(
            "optimizers",
            "How many optimizers have it, without those of threads whose steps are not counted, and"
            " without those that are around another one, as Lookahead's.",
        ),
        text("optimizer", "Their names, as in `python.optimizers`; NULL without any."),
        flag(
            "has_state",
            "Whether an optimizer keeps state for it: Adam and SGD with momentum do from its"
            " first gradient on.",
        ),
        size("state_bytes", "What that state takes."),
        text(
            "idle_wrapper",
            "The class of a wrapper around it that averages gradients over several ranks"
            " (DistributedDataParallel) and has never been called, where no other around it was;"
            " with ` (gone)` where nobody holds it any more. Else NULL.",
        ),
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
            "The optimizer's number among those alive, from 0, as first stepped.",
        ),
        text("optimizer", "The optimizer's class."),
        text(
            "name",
            "Its name in `python.optimizer_steps` and for `act`: the variable that held it at"
            " its first step, else its class; numbered where several share a name.",
        ),
        count("param_group", "The group's place in `param_groups`."),
        number("lr", "The learning rate now; NULL where it is a tensor on an accelerator."),
        number("weight_decay", "NULL where it has none, as with `lr`."),
        text("betas", "Adam's and its relatives' decay rates, such as `0.9, 0.999`."),
        number("momentum", "SGD's momentum; NULL where it has none."),
        number(
            "clip",
            "The norm that gradients are clipped to: the group's `max_grad_norm`, else that"
            " of the script's last `clip_grad_norm_` on its parameters.",
        ),
        count("tensors", "How many parameter tensors are in the group."),
        count("parameters", "Number of elements in them; NULL while one has no shape yet."),
        _TRAINABLE,
        size("parameter_bytes", "What they take."),
        size("state_bytes", "What the optimizer's tensors for them take, such as Adam's moments."),
        _DTYPE._replace(doc="The types of the parameters, separated by commas."),
        _DEVICE._replace(doc="The devices that they are on."),
        count(
            "skipped",
            "Steps of any optimizer that a gradient scaler has left out since the last one made.",
        ),
        choice(
            "implementation",
            IMPLEMENTATIONS,
            "How it steps: `fused`, one kernel per group; `foreach`, one call per operation;"
            " `for-loop`, one per operation and tensor; `default`: torch chooses, `foreach` on"
            " accelerators, `for-loop` on a CPU.",
        ),
    ),
)
