"""The tables by which ranks and runs are compared: what must be the same on all of them.

Rules of this file: see the package.
"""

from __future__ import annotations

from .records import Table, choice, count, flag, text

CHECKSUM_KINDS = ("parameter", "buffer", "statistic", "optimizer", "random")
ENVIRONMENT_KINDS = (
    *("environment", "version", "torch", "place"),
    *("argument", "code", "configuration", "seed"),
)

ENVIRONMENT = Table(
    name="environment",
    kind="live",
    doc="What can make the process compute something else than another rank or run: arguments,"
    " code, models, optimizers and loaders, environment variables of torch, NCCL, gloo, CUDA,"
    " OpenMP and Python, versions of imported packages, torch switches, seeds, host and device."
    " A copy is kept in the run folder while the training runs and as it ends; it answers"
    " afterwards.",
    columns=(
        choice(
            "kind",
            ENVIRONMENT_KINDS,
            "`environment`: a variable; `version` of a package; `torch`: a switch or number of"
            " torch; `place`: what differs between ranks by nature; `argument` of the script;"
            " `code`: branch and commit by `.git`, and of each file of the job's own what git calls"
            " its content; `configuration`: what a model, an optimizer (by its constructor) or a"
            " loader is set up with, also after it has gone; `seed` of a generator.",
        ),
        text("name", "Its name."),
        text(
            "value",
            "Its value; NULL for a secret, and for a file that was changed after the process had"
            " started.",
        ),
        flag(
            "is_secret",
            "Whether its name says that it must not be shown: TOKEN, KEY, SECRET, PASSWORD and the"
            " like.",
        ),
        text(
            "fingerprint",
            "Of a secret, 16 bits that tell whether another rank or run has the same; else NULL.",
        ),
    ),
)

PARAMETER_CHECKSUMS = Table(
    name="parameter_checksums",
    kind="live",
    doc="Checksums of the bits of each parameter and buffer of the trained models, the"
    " optimizers' options, and checksums of random generators' states, taken by the training"
    " thread at the end of a step, or as things are where it makes no progress. Equal"
    " parameters have equal checksums after the same step.",
    columns=(
        count("step", "The last step that was over; NULL where none is counted."),
        choice(
            "kind",
            CHECKSUM_KINDS,
            "`parameter`; `buffer`; `statistic`: a buffer in which a normalization counts its"
            " own rank's batches; `optimizer`: an option of a group; `random`: a generator's"
            " state.",
        ),
        text("root", "The class of the root module, or of the optimizer, that it belongs to."),
        text(
            "parameter",
            "Its qualified name in the root; of an option its group and name; of a state its"
            " generator.",
        ),
        text("shape", "Its size, such as `[64,128]`; that of a shard."),
        text("dtype", "Its type."),
        text("device", "Where it is."),
        flag("is_shard", "Whether other ranks hold other parts of it, so that theirs differ."),
        text(
            "checksum",
            "`crc32:` and 8 digits in main memory, `sums:` and 16 on a device; of an option its"
            " value; NULL where the parameter holds no plain numbers, or is on a device while the"
            " training stands still.",
        ),
    ),
)
