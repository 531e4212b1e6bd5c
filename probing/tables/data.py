"""The tables of the data that a training is fed with: batches and data loaders.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD
from .records import Column, Table

_LOADER = Column(
    name="loader",
    type="int64",
    bits=32,
    doc="The number of the `DataLoader`, counted from 0 in the order in which the agent has met"
    " them.",
)

BATCHES = Table(
    name="batches",
    kind="recorded",
    doc="Every wait for a batch of a `torch.utils.data.DataLoader`, in any thread. A row is written"
    " when the wait begins and completed when the batch is there, so an open row is a wait that is"
    " going on. The last wait of an epoch brings no batch: see `exhausted`.",
    columns=(
        STEP,
        _LOADER,
        Column(
            name="batch",
            type="int64",
            bits=32,
            doc="Which batch of the epoch it is, counted from 0.",
        ),
        DURATION,
        Column(
            name="worker",
            type="int64",
            doc="The worker process that made it, by its number in the loader; of a batch that has"
            " not come, the one whose turn it is. NULL without workers, and where it is not"
            " known.",
        ),
        Column(
            name="samples",
            type="int64",
            closing=True,
            doc="The samples in it: the first size of its tensors. NULL where they have none, and"
            " where the loader does not collate and they do not show one.",
        ),
        Column(
            name="tokens",
            type="int64",
            closing=True,
            doc="The elements of its first integer tensor with two dimensions; NULL without one.",
        ),
        Column(
            name="bytes",
            type="int64",
            unit="bytes",
            closing=True,
            doc="What the elements of its tensors take; NULL where one of them is not strided.",
        ),
        Column(
            name="tensors",
            type="text",
            closing=True,
            doc="Names, types and sizes of its tensors, such as `input_ids: int64[4,128], labels:"
            " int64[4,128]`. Of the first 512 kinds of batches all sizes are given, of the next 512"
            " only the first, such as `int64[4,?]`, and none of others.",
        ),
        Column(
            name="device",
            type="text",
            closing=True,
            doc="Where its first tensor is, such as `cpu`; NULL without tensors.",
        ),
        Column(
            name="pinned",
            type="bool",
            closing=True,
            doc="Whether its first tensor is in pinned memory; NULL without tensors.",
        ),
        Column(
            name="exhausted",
            type="bool",
            closing=True,
            doc="Whether there was no further batch: the end of the epoch.",
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
    doc="Every iterator of a `torch.utils.data.DataLoader` that is alive, one row for each of its"
    " worker processes, or a single one without workers. The loader's columns are the same in all"
    " rows of it.",
    columns=(
        _LOADER,
        Column(name="dataset", type="text", doc="The class of its dataset."),
        Column(
            name="batches",
            type="int64",
            doc="How many batches an epoch has; NULL where the loader does not tell.",
        ),
        Column(
            name="batch_size",
            type="int64",
            doc="Samples per batch; NULL where the loader does not collate, or its sampler does not"
            " tell.",
        ),
        Column(name="num_workers", type="int64", doc="Its worker processes; 0 for none."),
        Column(
            name="prefetch_factor",
            type="int64",
            doc="Batches that each worker makes in advance; NULL without workers.",
        ),
        Column(name="pin_memory", type="bool", doc="Whether it puts batches into pinned memory."),
        Column(
            name="persistent_workers",
            type="bool",
            doc="Whether its workers outlive the epoch.",
        ),
        Column(
            name="batch",
            type="int64",
            doc="The batches that it has given in this epoch.",
        ),
        Column(
            name="given",
            type="int64",
            doc="The batches that the loader has given since the agent met it, in all epochs.",
        ),
        Column(
            name="mean_wait",
            type="float64",
            unit="s",
            doc="How long such a batch was waited for, on average; NULL before the first.",
        ),
        Column(
            name="last_wait",
            type="float64",
            unit="s",
            doc="How long the last of them was waited for.",
        ),
        Column(
            name="waiting",
            type="bool",
            doc="Whether a thread waits for its next batch right now.",
        ),
        Column(
            name="waited",
            type="float64",
            unit="s",
            doc="For how long it has waited; NULL when none does, and when the wait began before"
            " the agent came.",
        ),
        Column(name="thread_id", type="int64", doc="The thread that waits; NULL when none does."),
        Column(
            name="outstanding",
            type="int64",
            doc="Batches that workers have been asked for and that have not come; NULL without"
            " workers.",
        ),
        Column(name="worker", type="int64", doc="The worker's number in the loader; NULL without."),
        Column(
            name="awaited",
            type="bool",
            doc="Whether the next batch is this worker's to make; NULL where any worker's will do.",
        ),
        Column(
            name="tasks",
            type="int64",
            doc="The batches outstanding that are this worker's.",
        ),
        Column(name="pid", type="int64", doc="The worker's process."),
        Column(
            name="state",
            type="text",
            doc="The kernel's word for it: R running, S sleeping, D uninterruptible, T stopped, Z"
            " ended; NULL when it is gone.",
        ),
        Column(
            name="resident_bytes",
            type="int64",
            unit="bytes",
            doc="The worker's resident set, what it shares with others included.",
        ),
        Column(
            name="cpu_s",
            type="float64",
            unit="s",
            doc="Processor time the worker has used, user + system.",
        ),
    ),
)
