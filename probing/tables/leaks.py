"""The tables that say what stayed in memory in the steps that `probing PID leak` watched.

Rules of this file: see the package. Both show the last watch, and are empty before the first.
"""

from __future__ import annotations

from .columns import STEP
from .records import Table, choice, count, flag, number, seconds, size, text
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


_CATEGORY = choice("category", CATEGORIES, "What the storages are used for; see python.tensors.")

HOLDER_COLUMNS = (
    flag("has_graph", "Whether one of them keeps an autograd graph alive."),
    choice(
        "holder",
        HOLDERS,
        "What refers to one of them: a `global` variable, an `attribute` of a torch module, a"
        " `class` attribute, a `closure`, a `local` variable of a running function, the"
        " `traceback` of a kept exception, an autograd `graph`, a `cycle`, `native` code or"
        " objects unknown to the garbage collector such as a NumPy array; or `unknown`.",
    ),
    text("path", "That reference, such as `trainer.losses[...]`."),
    text("place", "Whose it is, such as `__main__`, or the function's name."),
    text("container", "The innermost collection on the way, such as `list of 120`."),
    count(
        "bound",
        "The most that this collection, or one around it of which it is an item, can hold: of a"
        " deque with `maxlen`, a queue with `maxsize`.",
    ),
    text("file", "The source file of the holder."),
    count("lineno", "The one line that adds to it; NULL where there are several."),
)
"""Who refers to a tensor."""

LEAK_STEPS = Table(
    name="leak_steps",
    kind="live",
    doc="One row per watched step and category: what was in memory as the step ended, and"
    " counts that grow with common mistakes. The first row of each category is from before"
    " the watch.",
    columns=(
        STEP,
        _CATEGORY,
        count("tensors", "Storages of that category."),
        size("bytes", "Their sizes together."),
        count("modules", "Modules of the models."),
        count("hooks", "Hooks on those modules and their parameters."),
        flag(
            "stale_gradients",
            "Whether the step's first backward pass found the previous step's gradients. NULL"
            " with several optimizers.",
        ),
        count("graph_pools", "Memory pools of CUDA graphs."),
        size("graph_pool_bytes", "What those have reserved of the device."),
        count("descriptors", "Open descriptors of the process."),
        count("threads", "Threads of Python, without the agent's."),
        size(
            "worker_bytes",
            "The worker processes' own memory, data loaders' included; NULL where some have gone.",
        ),
        seconds("cost_s", "How long the training was held to count them."),
    ),
)

LEAK_GROWTH = Table(
    name="leak_growth",
    kind="live",
    doc="What changed over the watched steps, by category, module, type and device. The rows"
    " add up to the growth of all tensors.",
    columns=(
        _CATEGORY,
        text(
            "module",
            "Their module; for saved activations the innermost in whose call they were saved.",
        ),
        text("dtype", "The type of the numbers."),
        text("device", "Where they lie, such as `cuda:0`."),
        count("tensors_before", "Storages before the watched steps."),
        count("tensors_after", "Storages after them."),
        size("bytes_before", "The sizes of those before."),
        size("bytes_after", "The sizes of those after."),
    ),
)

LEAKS = Table(
    name="leaks",
    kind="live",
    doc="One row per kind of storage that was new in several watched steps and stayed,"
    " largest growth first; and one per count that grew: hooks, descriptors, threads,"
    " items of a Python collection, memory of worker processes.",
    columns=(
        _CATEGORY,
        text("module", "Their module, by its name in its root."),
        text(
            "name",
            "What that module or optimizer calls the newest of them; `hooks`, `descriptors`,"
            " `threads`, `items` or `workers` where it is no storage.",
        ),
        text("shape", "Type and sizes, such as `float32[8,128]`."),
        text("device", "Where they lie, such as `cuda:0`."),
        flag("was_input", "Whether some were given to a model, or came from a data loader."),
        count("kept", "Storages that came in the watched steps and are still there."),
        count("births", "In how many of the watched steps such storages came."),
        number("tensors_per_step", "By how many their number grew per step."),
        number("bytes_per_step", "By how much their sizes grew per step.", unit="bytes"),
        count("tensors", "All of the kind, also from before."),
        size("bytes", "Their sizes together."),
        *HOLDER_COLUMNS,
        count("first_step", "The first watched step in which one came."),
        count("last_step", "The last one."),
    ),
)
