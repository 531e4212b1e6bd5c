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
        "The sizes of the tensors that this rank gives (for `recv`, takes), such as `[64,128]`;"
        " several are separated by `;`, and of many the first eight are named.",
    ),
    text("dtypes", "Their data type; several types are separated by `;`."),
)

COLLECTIVES = Table(
    name="collectives",
    kind="recorded",
    doc="Every collective and every message between two ranks, from its entry on: an open row"
    " (`duration IS NULL`) is one that this rank has entered and that has not ended, so that it"
    " waits for others, or one begun with `async_op` that is under way.",
    columns=(
        STEP,
        GROUP_NAME,
        count("group_size", "How many ranks the group has.", bits=32),
        count(
            "seq",
            "The number of the collective within its group, from 1: the same on all ranks for the"
            " same collective. Where the agent came later, it goes on from the backend's number,"
            " which is that only if no messages were exchanged in the group before. For `send` and"
            " `recv`, the number of the message from this sender to this receiver.",
        ),
        *_WHAT,
        size("bytes", "The size of those tensors."),
        text(
            "reduce_op",
            "`sum`, `avg`, `max`, ..., as the backend is told: DistributedDataParallel divides its"
            " gradients first and has them summed, unless a hook says otherwise. NULL for one that"
            " reduces nothing, and where a torch does not tell what its C++ calls for.",
        ),
        count(
            "root",
            "The rank that sends to all or receives from all, counted in the whole job; NULL where"
            " there is none.",
        ),
        count(
            "peer",
            "The other rank of a `send` or `recv`, counted in the whole job; NULL for a"
            " collective, and while it may be any.",
        ),
        flag(
            "is_async",
            "Whether the call returned before the end, for the program to wait for it later.",
        ),
        text(
            "caller",
            "The line of the program, as `file.py:123`; where none of its lines led to it, that of"
            " the library.",
        ),
        DURATION,
        count(
            "wait_ns",
            "How long the program was kept waiting for it; NULL where that is not known. Of one"
            " that a device does, no longer than it took to queue it: the device waits.",
            unit="ns",
            closing=True,
        ),
        seconds(
            "device_s",
            "What it took on the accelerator, waiting there for other ranks included: in the"
            " steps that python.device_times has, of one that its caller waits for at once, and"
            " that was not gathered with others. The rank that comes last waits for none, so that"
            " the least of all ranks is the transfer.",
            closing=True,
        ),
        size(
            "growth_bytes",
            "By how much the memory in use had grown in it, below 0 where it had shrunk: what the"
            " allocator of the accelerator had handed out, on the CPU the resident set. Of each"
            " call while `probing PID leak` watches, else of one now and then; NULL of the others.",
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
            "All of them, as they are counted in the whole job: `0,1,2,3`; of very many, ranges:"
            " `0-511`.",
        ),
        seconds("timeout_s", "How long its collectives may take, before torch gives up."),
        moment("created_ns", "When it was first seen."),
    ),
)

FLIGHT_RECORDER = Table(
    name="flight_recorder",
    kind="live",
    doc="What torch's own flight recorder has of the last collectives, whoever called for them:"
    " also from before the agent came. It is on where TORCH_FR_BUFFER_SIZE is above 0, and has no"
    " rows where it is off.",
    columns=(
        count("record_id", "Its number in this process, from 0; those of NCCL are counted apart."),
        GROUP_NAME,
        text("description", "What the group is for."),
        count(
            "backend_seq",
            "The number that the backend gives it within its group. Backends count some"
            " collectives twice, and messages, too, so it is not `seq` of python.collectives.",
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
            "What it took on the device, waiting for others there included; NULL unless NCCL times"
            " it: TORCH_NCCL_ENABLE_TIMING=1.",
        ),
    ),
)
