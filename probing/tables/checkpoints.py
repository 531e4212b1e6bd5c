"""The table of the checkpoints that the script has written.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD
from .records import Column, Table

SAVED_BY = ("torch.save", "torch.distributed.checkpoint")

CHECKPOINTS = Table(
    name="checkpoints",
    kind="recorded",
    doc="One row for each call of `torch.save` and of torch.distributed.checkpoint's `save` and"
    " `async_save`, whatever is saved. A row is open while the file is written.",
    columns=(
        STEP._replace(doc="The last step that had ended."),
        Column(
            name="path", type="text", doc="Where it was written; NULL of what is no file by a name."
        ),
        Column(name="saved_by", type="enum", values=SAVED_BY, doc="What has written it."),
        Column(
            name="has_model",
            type="bool",
            doc="Whether parameters of a model that is trained are in it, by their names.",
        ),
        Column(name="has_optimizer", type="bool", doc="Whether state of an optimizer is in it."),
        Column(
            name="weights_finite",
            type="bool",
            doc="Whether all weights of the models were finite then; NULL where none was known.",
        ),
        Column(
            name="caller",
            type="text",
            doc="The line of the program that saves, as `file.py:123`.",
        ),
        DURATION,
        Column(
            name="bytes",
            type="int64",
            unit="bytes",
            closing=True,
            doc="The size of the file; NULL where it is none.",
        ),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
