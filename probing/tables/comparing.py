"""The tables by which ranks are compared: what must be the same on all of them.

Rules of this file: see the package.
"""

from __future__ import annotations

from .records import Table, choice, count, flag, text

CHECKSUM_KINDS = ("parameter", "buffer", "statistic", "optimizer", "random")
ENVIRONMENT_KINDS = ("environment", "version", "torch", "place")

ENVIRONMENT = Table(
    name="environment",
    kind="live",
    doc="What the process runs in that can make it compute something else than another rank:"
    " environment variables of torch, NCCL, gloo, CUDA, OpenMP and Python, versions of the packages"
    " that are imported, switches of torch, host and device.",
    columns=(
        choice(
            "kind",
            ENVIRONMENT_KINDS,
            "`environment` for a variable, `version` of a package, `torch` for a switch or number"
            " of torch's, `place` for what differs between ranks by its nature.",
        ),
        text("name", "Its name."),
        text("value", "Its value; NULL for a secret."),
        flag(
            "is_secret",
            "Whether its name says that it must not be shown: TOKEN, KEY, SECRET, PASSWORD.",
        ),
        text(
            "fingerprint",
            "Of a secret, 16 bits that tell whether it is the same on another rank of the job;"
            " NULL for anything else.",
        ),
    ),
)

PARAMETER_CHECKSUMS = Table(
    name="parameter_checksums",
    kind="live",
    doc="A checksum of the bits of each parameter and each buffer of the models that are trained,"
    " the options of the optimizers' groups, and checksums of the states of random generators,"
    " taken by the training thread at the end of a step; where that makes no progress, as it"
    " stands. Ranks that hold the same parameters have the same checksums after the same step.",
    columns=(
        count("step", "The last step that was over; NULL where none is counted."),
        choice(
            "kind",
            CHECKSUM_KINDS,
            "`parameter`; `buffer`; `statistic` for a buffer in which a normalization counts the"
            " batches of its own rank; `optimizer` for an option of a group; `random` for the"
            " state of a generator.",
        ),
        text("root", "The class of the root module, or of the optimizer, that it belongs to."),
        text(
            "parameter",
            "Its qualified name in the root; of an option its group and name; of a state whose"
            " generator it is.",
        ),
        text("shape", "Its size, such as `[64,128]`; that of a shard."),
        text("dtype", "Its type."),
        text("device", "Where it is."),
        flag("is_shard", "Whether other ranks hold other parts of it, so that theirs differ."),
        text(
            "checksum",
            "`crc32:` and 8 digits in main memory, `sums:` and 16 on a device, where it is made of"
            " sums; of an option its value; NULL where the parameter holds no plain numbers, or is"
            " on a device while the training stands still.",
        ),
    ),
)
