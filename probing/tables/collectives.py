"""The tables of many ranks: collectives, and the process groups that they are of.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, START_NS, STEP, THREAD
from .records import Table, count, flag, moment, seconds, size, text

GROUP_NAME = text(
    "process_group", "The process group, by torch's own name of it: `0` is the default group."
)
_WHAT = (
    text(
        "op",
        "`all_reduce`, `broadcast`, `reduce`, `all_gather`, `reduce_scatter`, `all_to_all`,"
        " `gather`, `scatter`, `barrier`, `monitored_barrier`, `send` or `recv`.",
    ),
    text(
        "shapes",
        "The sizes of the tensors that this rank gives (for `recv`, takes), such as `[64,128]`,"
        " separated by `;`, the first eight.",
    ),
    text("dtypes", "Their data type; several types are separated by `;`."),
)

COLLECTIVES = Table(
    name="collectives",
    kind="recorded",
    doc="Every collective and every message between two ranks. An open row (`duration IS NULL`)"
    " is one that this rank has entered and that has not ended: it waits for others, or runs"
    " with `async_op`.",
    columns=(
        STEP,
        GROUP_NAME,
        count("group_size", "How many ranks the group has.", bits=32),
        count(
            "seq",
            "The collective's number within its group, from 1, the same on all ranks. Where the"
            " agent came later, it continues the backend's number, which is the same only if the"
            " group had exchanged no messages. For `send` and `recv`, the message's number from"
            " this sender to this receiver.",
        ),
        *_WHAT,
        size("bytes", "The size of those tensors."),
        text(
            "reduce_op",
            "`sum`, `avg`, `max`, ..., as the backend is told: DistributedDataParallel divides"
            " its gradients and sums them, unless a hook differs. NULL without a reduction, and"
            " where torch does not tell it of calls from C++.",
        ),
        count(
            "root",
            "The rank in the whole job that sends to all or receives from all; NULL without one.",
        ),
        count(
            "peer",
            "The other rank of a `send` or `recv`, as numbered in the whole job; NULL for a"
            " collective, and while it may be any.",
        ),
        flag(
            "is_async",
            "Whether the call returned before the end, for the program to wait for it later.",
        ),
        text(
            "caller",
            "The line of the program, as `file.py:123`; else that of the library.",
        ),
        DURATION,
        count(
            "wait_ns",
            "How long the program waited for it; NULL where unknown. On a device only the time"
            " to queue it: the device waits.",
            unit="ns",
            closing=True,
        ),
        seconds(
            "device_s",
            "Its time on the accelerator, waiting for other ranks included, in the steps of"
            " python.device_times, where the caller waits at once and it was not coalesced. The"
            " least of all ranks is the transfer, since the last rank waits for none.",
            closing=True,
        ),
        size(
            "growth_bytes",
            "How much memory in use grew in it (negative: shrank): the accelerator allocator's,"
            " on the CPU the resident set. Of each call while `probing PID leak` watches, else"
            " now and then; otherwise NULL.",
            closing=True,
        ),
        text("error", "What it failed with; NULL if it did not.", closing=True),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
    ),
)

PROCESS_GROUPS = Table(
    name="process_groups",
    kind="recorded",
    doc="The process groups that this rank is in, one row for each that was made.",
    columns=(
        GROUP_NAME,
        text("description", "What torch or the program says it is for."),
        text("backend", "Such as `gloo` or `nccl`."),
        count("size", "How many ranks it has.", bits=32),
        count("group_rank", "Which of them this process is, from 0."),
        text(
            "ranks",
            "Its ranks in the whole job: `0,1,2,3`; of very many, ranges: `0-511`.",
        ),
        seconds("timeout_s", "How long its collectives may take, before torch gives up."),
        moment("created_ns", "When it was first seen."),
    ),
)

FLIGHT_RECORDER = Table(
    name="flight_recorder",
    kind="live",
    doc="The last collectives in torch's own flight recorder, also from before the agent came."
    " Empty unless TORCH_FR_BUFFER_SIZE is above 0.",
    columns=(
        count("record_id", "Its number in this process, from 0; those of NCCL are counted apart."),
        GROUP_NAME,
        text("description", "What the group is for."),
        count(
            "backend_seq",
            "The backend's number for it within its group. It counts some collectives twice and"
            " messages too, so it is not `seq` of python.collectives.",
        ),
        text("backend", "Such as `gloo` or `nccl`."),
        *_WHAT,
        flag("is_p2p", "Whether it is a message between two ranks."),
        text(
            "state",
            "`scheduled`, `started` or `completed`, as the backend says; gloo never says more than"
            " `scheduled`, see `is_over`.",
        ),
        flag(
            "is_over", "Whether it has ended, by its state, or because the recorder has retired it."
        ),
        seconds("timeout_s", "When torch gives it up."),
        moment("created_ns", "When it was entered, since the epoch."),
        moment(
            "started_ns", "When the device was seen to have begun it; NULL where that is not told."
        ),
        moment("completed_ns", "When it was seen to have ended; NULL where that is not told."),
        seconds(
            "device_s",
            "Its time on the device, waiting for others included; NULL unless NCCL times it:"
            " TORCH_NCCL_ENABLE_TIMING=1.",
        ),
    ),
)
