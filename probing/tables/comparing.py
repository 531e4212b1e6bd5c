"""The tables by which ranks and runs are compared: what must be the same on all of them."""

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
    doc="What can make the process compute something else than another rank or run. A copy in"
    " the run folder answers after its end.",
    columns=(
        choice(
            "kind",
            ENVIRONMENT_KINDS,
            "`environment`: a variable (torch, NCCL, gloo, CUDA, OpenMP, Python); `version`"
            " of an imported package; `torch`: a switch or number of torch; `place`: what"
            " differs between ranks by nature (host, device); `argument` of the script;"
            " `code`: branch, commit, and git's name for the content of each file of the job;"
            " `configuration` of a model, optimizer (by its constructor) or loader, also after"
            " it has gone; `seed` of a generator.",
        ),
        text("name", "Its name."),
        text(
            "value",
            "Its value; NULL for a secret, and for a file changed after the process had started.",
        ),
        flag(
            "is_secret",
            "Whether it must not be shown: a word of its name is token, key, secret, password or"
            " the like. Such a value within another is `***`.",
        ),
        text(
            "fingerprint",
            "Of a secret, 16 bits that tell whether another rank or run has the same.",
        ),
    ),
)

PARAMETER_CHECKSUMS = Table(
    name="parameter_checksums",
    kind="live",
    doc="Checksums of parameters, buffers, optimizer options and states of random generators,"
    " taken by the training thread at the end of a step, or as things are where it makes"
    " no progress.",
    columns=(
        count("step", "The last step that was over."),
        choice(
            "kind",
            CHECKSUM_KINDS,
            "`parameter`; `buffer`; `statistic`: a buffer in which a normalization counts its"
            " own rank's batches; `optimizer`: an option of a group; `random`: a generator's"
            " state.",
        ),
        text("root", "The class of the root module or optimizer."),
        text("model", "The root module's name in `python.models`; NULL of what is in none."),
        text(
            "parameter",
            "Its qualified name in the root; an option's group and name; a generator.",
        ),
        text("shape", "Its size, such as `[64,128]`; that of a shard."),
        text("dtype", "Its type."),
        text("device", "Where it is."),
        flag("is_shard", "Whether other ranks hold other parts of it."),
        text(
            "checksum",
            "`crc32:` and 8 digits in main memory, `sums:` and 16 on a device; of an option"
            " its value. NULL without plain numbers, or on a device while the training stands"
            " still.",
        ),
    ),
)
