"""The tables of many ranks: collectives, and the process groups that they are of."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, START_NS, STEP, THREAD
from .records import Table, closing, count, flag, moment, seconds, size, text

GROUP_NAME = text("process_group", "The process group, by torch's name: `0` is the default group.")
_WHAT = (
    text(
        "op",
        "`all_reduce`, `broadcast`, `reduce`, `all_gather`, `reduce_scatter`, `all_to_all`,"
        " `gather`, `scatter`, `barrier`, `monitored_barrier`, `send` or `recv`.",
    ),
    text(
        "shapes",
        "The sizes of this rank's tensors, such as `[64,128]`, separated by `;`, the first eight;"
        " NULL if they are new after 16,384 others.",
    ),
    text("dtypes", "Their data type; several types are separated by `;`."),
)

COLLECTIVES = Table(
    name="collectives",
    kind="recorded",
    doc="Every collective and every message between two ranks. An open row (`duration IS"
    " NULL`) is one that this rank has entered and that has not ended: it waits for"
    " others, or runs with `async_op`.",
    columns=(
        STEP,
        GROUP_NAME,
        count("group_size", "How many ranks the group has.", bits=32),
        count(
            "seq",
            "The collective's number within its group, from 1, the same on all ranks; after a"
            " late start only if the group had exchanged no messages before. For `send` and"
            " `recv`, the message's number from this sender to this receiver.",
        ),
        *_WHAT,
        size("bytes", "The size of those tensors."),
        text(
            "reduce_op",
            "`sum`, `avg`, `max`, ..., as the backend is told (DistributedDataParallel"
            " divides, then sums). NULL without a reduction, and for calls from C++ that do"
            " not tell.",
        ),
        count("root", "The rank in the whole job that sends to all or receives from all."),
        count(
            "peer",
            "The other rank of a `send` or `recv`, as numbered in the whole job; NULL while"
            " it may be any.",
        ),
        flag("is_async", "Whether the call returned before the end."),
        text("caller", "The line of the program, as `file.py:123`; else of the library."),
        DURATION,
        *closing(
            count(
                "wait_ns",
                "How long the program waited for it; on a device only the time to queue it.",
                unit="ns",
            ),
            seconds(
                "device_s",
                "Its time on the accelerator, waiting for other ranks included, in steps of"
                " python.device_times, if the caller waits at once. The minimum over ranks is the"
                " transfer.",
            ),
            size(
                "growth_bytes",
                "By how much memory in use grew: the accelerator allocator's, else the resident"
                " set. Of each call while `probing PID leak` watches, else now and then.",
            ),
            text("error", "What it failed with."),
        ),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
    ),
)

PROCESS_GROUPS = Table(
    name="process_groups",
    kind="recorded",
    doc="One row per process group that this rank is in.",
    columns=(
        GROUP_NAME,
        text("description", "What torch or the program says it is for."),
        text("backend", "Such as `gloo` or `nccl`."),
        count("size", "How many ranks it has.", bits=32),
        count("group_rank", "Which of them this process is, from 0."),
        text("ranks", "Its ranks in the whole job: `0,1,2,3`, or ranges: `0-511`."),
        seconds("timeout_s", "After how long torch gives a collective up."),
        moment("created_ns", "When it was first seen, or its collectives counted anew."),
    ),
)

FLIGHT_RECORDER = Table(
    name="flight_recorder",
    kind="live",
    doc="The last collectives in torch's own flight recorder, also from before the agent"
    " came. Empty unless TORCH_FR_BUFFER_SIZE is above 0.",
    columns=(
        count("record_id", "Its number in this process, from 0; NCCL's are counted apart."),
        GROUP_NAME,
        text("description", "What the group is for."),
        count(
            "backend_seq",
            "The backend's number for it within its group; it counts messages and some"
            " collectives twice, so it is not `seq` of python.collectives.",
        ),
        text("backend", "Such as `gloo` or `nccl`."),
        *_WHAT,
        flag("is_p2p", "Whether it is a message between two ranks."),
        text(
            "state",
            "`scheduled`, `started` or `completed`; gloo only says `scheduled`, see `is_over`.",
        ),
        flag("is_over", "Whether it has ended, by its state or because the recorder retired it."),
        seconds("timeout_s", "When torch gives it up."),
        moment("created_ns", "When it was entered, since the epoch."),
        moment("started_ns", "When the device was seen to begin it."),
        moment("completed_ns", "When it was seen to have ended."),
        seconds(
            "device_s",
            "Its time on the device, waiting included; only with TORCH_NCCL_ENABLE_TIMING=1.",
        ),
    ),
)
