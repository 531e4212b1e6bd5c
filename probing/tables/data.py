"""The tables of the data that a training is fed with: batches and data loaders."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD
from .records import Table, closing, count, flag, seconds, size, text

_LOADER = count("loader", "The number of the `DataLoader`, from 0, as the agent met them.", bits=32)

BATCHES = Table(
    name="batches",
    kind="recorded",
    doc="Every wait for a batch of a `torch.utils.data.DataLoader`, in any thread; open while"
    " it lasts. The last wait of an epoch brings no batch: see `exhausted`.",
    columns=(
        STEP,
        _LOADER,
        count("batch", "Which batch of the epoch it is, from 0.", bits=32),
        DURATION,
        count("worker", "The worker process that made it, or whose turn it is."),
        *closing(
            count("samples", "Its samples: the first size of its tensors."),
            count("tokens", "The elements of its first integer tensor with two dimensions."),
            size("bytes", "What its tensors take; NULL where one is not strided."),
            text(
                "tensors",
                "Names, types and sizes of its tensors, such as `input_ids: int64[4,128], labels:"
                " int64[4,128]`; after 512 kinds only the first, such as `int64[4,?]`, after"
                " 1,024 none.",
            ),
            text("device", "Where its first tensor is, such as `cpu`."),
            flag("pinned", "Whether its first tensor is in pinned memory."),
            flag("exhausted", "Whether there was no further batch: the end of the epoch."),
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
    doc="Every live iterator of a `torch.utils.data.DataLoader`: one row per worker process,"
    " or one without workers; the loader's columns repeat in each. A loader between two epochs,"
    " which has none, has one row without those of an iterator.",
    columns=(
        _LOADER,
        text("dataset", "The class of its dataset."),
        count("batches", "How many batches an epoch has."),
        count(
            "batch_size",
            "Samples per batch; NULL without collation, or where the sampler does not tell.",
        ),
        count("num_workers", "Its worker processes; 0 for none."),
        count("prefetch_factor", "Batches that each worker makes in advance."),
        text("sampler", "The class of its sampler."),
        flag("sampler_shuffles", "What the sampler's `shuffle` says; NULL where it has none."),
        count("sampler_epoch", "The epoch that the sampler was told by `set_epoch`."),
        count("epochs", "How many iterators over the loader have begun since the agent met it."),
        flag("pin_memory", "Whether it puts batches into pinned memory."),
        flag("persistent_workers", "Whether its workers outlive the epoch."),
        flag(
            "divides_stream",
            "Whether an IterableDataset with several workers asks which of them it is in"
            " (`get_worker_info` in its module, or a `worker_init_fn`); NULL of other datasets, and"
            " of those of libraries.",
        ),
        count("batch", "The batches given in this epoch."),
        count("given", "The batches given since the agent met it."),
        seconds("mean_wait", "How long a batch was waited for, on average."),
        seconds("last_wait", "How long the last of them was waited for."),
        flag("waiting", "Whether a thread waits for its next batch right now."),
        seconds("waited", "For how long it has waited; NULL if since before the agent came."),
        count("thread_id", "The thread that waits; NULL when none does."),
        count("outstanding", "Batches that workers were asked for and that have not come."),
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
        size("resident_bytes", "The worker's resident set, shared memory included."),
        seconds("cpu_s", "Processor time of the worker, user + system."),
    ),
)
