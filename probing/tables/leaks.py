"""The tables that say what stayed in memory in the steps that `probing PID leak` watched.

Rules of this file: see the package. Both show the last watch, and are empty before the first.
"""

from __future__ import annotations

from .columns import STEP
from .records import Column, Table
from .tensors import CATEGORIES

HOLDERS = (
    "global",
    "attribute",
    "class",
    "closure",
    "local",
    "traceback",
    "graph",
    "cycle",
    "native",
    "unknown",
)


def _count(name: str, doc: str, unit: str | None = None) -> Column:
    return Column(name=name, type="int64", unit=unit, doc=doc)


def _number(name: str, doc: str, unit: str | None = None) -> Column:
    return Column(name=name, type="float64", unit=unit, doc=doc)


def _text(name: str, doc: str) -> Column:
    return Column(name=name, type="text", doc=doc)


_CATEGORY = Column(
    name="category",
    type="enum",
    values=CATEGORIES,
    doc="What the storages are used for; see python.tensors.",
)

HOLDER_COLUMNS = (
    Column(
        name="has_graph",
        type="bool",
        doc="Whether one of them has an autograd graph, so that it keeps alive what led to it."
        " NULL where no Python object of it was found.",
    ),
    Column(
        name="holder",
        type="enum",
        values=HOLDERS,
        doc="From where one of them is referred to: a `global` variable of a module, an"
        " `attribute` of a torch module, a `class` attribute, a `closure`, a `local` variable"
        " of a function under way, the `traceback` of an exception that is kept, the autograd"
        " `graph` of another one; a `cycle` that only the garbage collector will free,"
        " `native` code or what Python's garbage collector does not know, such as a NumPy array;"
        " or `unknown`.",
    ),
    _text("path", "That reference, such as `trainer.losses[...]`."),
    _text("place", "Whose it is, such as `__main__`, or the function's name."),
    _text("container", "The innermost collection on the way, such as `list of 120`."),
    _count("bound", "The most that this collection can hold; NULL where it has no limit."),
    _text("file", "The source file of the holder."),
    _count(
        "lineno",
        "The one line that adds to it; NULL where there are several, or none was found.",
    ),
)
"""Who refers to a tensor."""

LEAK_STEPS = Table(
    name="leak_steps",
    kind="live",
    doc="One row per watched step and category: what was in memory as the step ended, counted"
    " storage by storage; and the counts that grow with the commonest mistakes. The first row of"
    " each category is from before the watched steps.",
    columns=(
        STEP,
        _CATEGORY,
        _count("tensors", "Storages of that category."),
        _count("bytes", "Their sizes together.", "bytes"),
        _count("modules", "Modules of the models, the same in each row of a step."),
        _count("hooks", "Hooks on those modules and on their parameters, likewise."),
        Column(
            name="stale_gradients",
            type="bool",
            doc="Whether the step's first backward pass found gradients of the step before. NULL"
            " where it was not seen, and with several optimizers.",
        ),
        _count("graph_pools", "Memory pools of CUDA graphs; NULL without an accelerator in use."),
        _count("graph_pool_bytes", "What those have reserved of the device.", "bytes"),
        _count("descriptors", "Open descriptors of the process."),
        _count("threads", "Threads of Python, without the agent's."),
        _count(
            "worker_bytes",
            "What the worker processes have of their own, those of data loaders among them; NULL"
            " where there are none, or some have gone.",
            "bytes",
        ),
        _number("cost_s", "How long the training was held to count them.", "s"),
    ),
)

LEAK_GROWTH = Table(
    name="leak_growth",
    kind="live",
    doc="What has changed in the watched steps: one row per category, module, type and device of"
    " which there is more or less after them than before. Every storage is counted, so that they"
    " add up to what all tensors together have grown by.",
    columns=(
        _CATEGORY,
        _text(
            "module",
            "The module that they belong to, by its name in its root; of what autograd has saved in"
            " the watched steps, the innermost in whose call that was. NULL where it is none.",
        ),
        _text("dtype", "The type of the numbers."),
        _text("device", "Where they lie, such as `cuda:0`."),
        _count("tensors_before", "Storages before the watched steps."),
        _count("tensors_after", "Storages after them."),
        _count("bytes_before", "The sizes of those before.", "bytes"),
        _count("bytes_after", "The sizes of those after.", "bytes"),
    ),
)

LEAKS = Table(
    name="leaks",
    kind="live",
    doc="One row per kind of storage that was new in several of the watched steps and never went,"
    " the largest growth first; and one per count that grew instead: of hooks, of descriptors and"
    " threads that stay, of items in a collection of Python, and what worker processes have.",
    columns=(
        _CATEGORY,
        _text("module", "The module that they belong to, by its name in its root; else NULL."),
        _text(
            "name",
            "What that module, or the optimizer, calls the newest of them; `hooks`, `descriptors`,"
            " `threads`, `items` or `workers` of what is no storage; else NULL.",
        ),
        _text("shape", "Type and sizes, such as `float32[8,128]`."),
        _text("device", "Where they lie, such as `cuda:0`."),
        Column(
            name="was_input",
            type="bool",
            doc="Whether some of them were given to a model, or came from a data loader.",
        ),
        _count("kept", "Storages that came in the watched steps and are still there."),
        _count("births", "In how many of the watched steps such storages came."),
        _number("tensors_per_step", "By how many their number grew per step."),
        _number("bytes_per_step", "By how much their sizes grew per step.", "bytes"),
        _count("tensors", "All that there are of the kind, also from before.", None),
        _count("bytes", "Their sizes together.", "bytes"),
        *HOLDER_COLUMNS,
        _count("first_step", "The first of the watched steps in which one came."),
        _count("last_step", "The last one."),
    ),
)
