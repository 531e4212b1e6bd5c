"""The tables of the data that a training is fed with: batches and data loaders.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD
from .records import Table, count, flag, seconds, size, text

_LOADER = count(
    "loader",
    "The number of the `DataLoader`, from 0 in the order in which the agent met them.",
    bits=32,
)

BATCHES = Table(
    name="batches",
    kind="recorded",
    doc="Every wait for a batch of a `torch.utils.data.DataLoader`, in any thread. An open row"
    " is a wait in progress. The last wait of an epoch brings no batch: see `exhausted`.",
    columns=(
        STEP,
        _LOADER,
        count("batch", "Which batch of the epoch it is, counted from 0.", bits=32),
        DURATION,
        count(
            "worker",
            "The number of the worker process that made it, or whose turn it is; NULL without"
            " workers or where unknown.",
        ),
        count(
            "samples",
            "Its samples: the first size of its tensors. NULL without one, and where an"
            " uncollated batch does not show it.",
            closing=True,
        ),
        count(
            "tokens",
            "The elements of its first integer tensor with two dimensions; NULL without one.",
            closing=True,
        ),
        size(
            "bytes",
            "What the elements of its tensors take; NULL where one of them is not strided.",
            closing=True,
        ),
        text(
            "tensors",
            "Names, types and sizes of its tensors, such as `input_ids: int64[4,128], labels:"
            " int64[4,128]`; after 512 kinds of batches only the first, such as `int64[4,?]`,"
            " after 1,024 none.",
            closing=True,
        ),
        text(
            "device",
            "Where its first tensor is, such as `cpu`; NULL without tensors.",
            closing=True,
        ),
        flag(
            "pinned",
            "Whether its first tensor is in pinned memory; NULL without tensors.",
            closing=True,
        ),
        flag(
            "exhausted", "Whether there was no further batch: the end of the epoch.", closing=True
        ),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)

DATALOADERS = Table(
    name="dataloaders",
    kind="live",
    doc="Every live iterator of a `torch.utils.data.DataLoader`: one row per worker process, or"
    " one without workers; the loader's columns repeat in each.",
    columns=(
        _LOADER,
        text("dataset", "The class of its dataset."),
        count("batches", "How many batches an epoch has; NULL where the loader does not tell."),
        count(
            "batch_size",
            "Samples per batch; NULL where the loader does not collate, or its sampler does not"
            " tell.",
        ),
        count("num_workers", "Its worker processes; 0 for none."),
        count(
            "prefetch_factor", "Batches that each worker makes in advance; NULL without workers."
        ),
        text("sampler", "The class that says in which order samples come."),
        count(
            "sampler_epoch",
            "The epoch that this sampler was told by `set_epoch`; NULL where it takes none.",
        ),
        count("epochs", "How many iterators over the loader have begun since the agent met it."),
        flag("pin_memory", "Whether it puts batches into pinned memory."),
        flag("persistent_workers", "Whether its workers outlive the epoch."),
        count("batch", "The batches that it has given in this epoch."),
        count(
            "given", "The batches that the loader has given since the agent met it, in all epochs."
        ),
        seconds(
            "mean_wait", "How long such a batch was waited for, on average; NULL before the first."
        ),
        seconds("last_wait", "How long the last of them was waited for."),
        flag("waiting", "Whether a thread waits for its next batch right now."),
        seconds(
            "waited",
            "For how long it has waited; NULL when it does not wait, or waited before the agent"
            " came.",
        ),
        count("thread_id", "The thread that waits; NULL when none does."),
        count(
            "outstanding",
            "Batches that workers have been asked for and that have not come; NULL without"
            " workers.",
        ),
        count("worker", "The worker's number in the loader; NULL without."),
        flag(
            "awaited",
            "Whether the next batch is this worker's to make; NULL where any worker's will do.",
        ),
        count("tasks", "The batches outstanding that are this worker's."),
        count("pid", "The worker's process."),
        text(
            "state",
            "The kernel's state of it: R running, S sleeping, D uninterruptible, T stopped, Z"
            " ended; NULL when it is gone.",
        ),
        size("resident_bytes", "The worker's resident set, what it shares with others included."),
        seconds("cpu_s", "Processor time the worker has used, user + system."),
    ),
)
