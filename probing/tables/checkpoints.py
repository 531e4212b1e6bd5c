"""The table of the checkpoints that the script has written."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD
from .records import Table, choice, closing, flag, size, text

SAVED_BY = ("torch.save", "torch.distributed.checkpoint")

CHECKPOINTS = Table(
    name="checkpoints",
    kind="recorded",
    rows=512,
    doc="One row per call of `torch.save`, and of `save` and `async_save` of"
    " torch.distributed.checkpoint; open while the file is written.",
    columns=(
        STEP._replace(doc="The last step that had ended."),
        text(
            "path",
            "Where it was written; only the folder after 1,000 files without a model or an"
            " optimizer, or 20,000 with one. NULL without a file name, and after 1,000 folders.",
        ),
        choice("saved_by", SAVED_BY, "What has written it."),
        flag("has_model", "Whether it has parameters of a trained model, by their names."),
        flag("has_optimizer", "Whether state of an optimizer is in it."),
        *closing(
            flag(
                "weights_finite",
                "Whether all weights of the models were finite as it began, if it has a model;"
                " NULL also where a device had not told when the file was written.",
            ),
        ),
        text("caller", "The line of the program that saves, as `file.py:123`."),
        DURATION,
        *closing(
            size("bytes", "The size of the file."),
        ),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
