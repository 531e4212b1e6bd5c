"""The tables of many ranks: collectives, and the process groups that they are of.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, START_NS, STEP, THREAD
from .records import Column, Table

GROUP_NAME = Column(
    name="process_group",
    type="text",
    doc="The process group, by torch's own name of it: `0` is the default group.",
)
_WHAT = (
    Column(
        name="op",
        type="text",
        doc="`all_reduce`, `broadcast`, `reduce`, `all_gather`, `reduce_scatter`, `all_to_all`,"
        " `gather`, `scatter`, `barrier`, `monitored_barrier`, `send` or `recv`.",
    ),
    Column(
        name="shapes",
        type="text",
        doc="The sizes of the tensors that this rank gives (for `recv`, takes), such as `[64,128]`;"
        " several are separated by `;`, and of many the first eight are named.",
    ),
    Column(name="dtypes", type="text", doc="Their data type; several types are separated by `;`."),
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
        Column(name="group_size", type="int64", bits=32, doc="How many ranks the group has."),
        Column(
            name="seq",
            type="int64",
            doc="The number of the collective within its group, from 1: the same on all ranks for"
            " the same collective. Where the agent came later, it goes on from the backend's"
            " number, which is that only if no messages were exchanged in the group before. For"
            " `send` and `recv`, the number of the message from this sender to this receiver.",
        ),
        *_WHAT,
        Column(name="bytes", type="int64", unit="bytes", doc="The size of those tensors."),
        Column(
            name="reduce_op",
            type="text",
            doc="`sum`, `avg`, `max`, ..., as the backend is told: DistributedDataParallel divides"
            " its gradients first and has them summed, unless a hook says otherwise. NULL for one"
            " that reduces nothing, and where a torch does not tell what its C++ calls for.",
        ),
        Column(
            name="root",
            type="int64",
            doc="The rank that sends to all or receives from all, counted in the whole job; NULL"
            " where there is none.",
        ),
        Column(
            name="peer",
            type="int64",
            doc="The other rank of a `send` or `recv`, counted in the whole job; NULL for a"
            " collective, and while it may be any.",
        ),
        Column(
            name="is_async",
            type="bool",
            doc="Whether the call returned before the end, for the program to wait for it later.",
        ),
        Column(
            name="caller",
            type="text",
            doc="The line of the program, as `file.py:123`; where none of its lines led to it, that"
            " of the library.",
        ),
        DURATION,
        Column(
            name="wait_ns",
            type="int64",
            unit="ns",
            closing=True,
            doc="How long the program was kept waiting for it; NULL where that is not known.",
        ),
        Column(
            name="device_s",
            type="float64",
            unit="s",
            closing=True,
            doc="What it took on the accelerator, waiting there for other ranks included: in the"
            " steps that python.device_times has, of one that its caller waits for at once; of"
            " several that were gathered, what all took together. The rank that comes last waits"
            " for none, so that the least of all ranks is the transfer.",
        ),
        Column(
            name="growth_bytes",
            type="int64",
            unit="bytes",
            closing=True,
            doc="By how much the memory in use had grown in it, below 0 where it had shrunk: what"
            " the allocator of the accelerator had handed out, on the CPU the resident set. Of each"
            " call while `probing PID leak` watches, else of one now and then; NULL of the others.",
        ),
        Column(
            name="error",
            type="text",
            closing=True,
            doc="What it failed with; NULL if it did not.",
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
    doc="The process groups that this rank is in, one row for each that was made.",
    columns=(
        GROUP_NAME,
        Column(name="description", type="text", doc="What torch or the program says it is for."),
        Column(name="backend", type="text", doc="Such as `gloo` or `nccl`."),
        Column(name="size", type="int64", bits=32, doc="How many ranks it has."),
        Column(name="group_rank", type="int64", doc="Which of them this process is, from 0."),
        Column(
            name="ranks",
            type="text",
            doc="All of them, as they are counted in the whole job: `0,1,2,3`; of very many,"
            " ranges: `0-511`.",
        ),
        Column(
            name="timeout_s",
            type="float64",
            unit="s",
            doc="How long its collectives may take, before torch gives up.",
        ),
        Column(name="created_ns", type="time", unit="ns", doc="When it was first seen."),
    ),
)

FLIGHT_RECORDER = Table(
    name="flight_recorder",
    kind="live",
    doc="What torch's own flight recorder has of the last collectives, whoever called for them:"
    " also from before the agent came. It is on where TORCH_FR_BUFFER_SIZE is above 0, and has no"
    " rows where it is off.",
    columns=(
        Column(
            name="record_id",
            type="int64",
            doc="Its number in this process, from 0; those of NCCL are counted apart.",
        ),
        GROUP_NAME,
        Column(name="description", type="text", doc="What the group is for."),
        Column(
            name="backend_seq",
            type="int64",
            doc="The number that the backend gives it within its group. Backends count some"
            " collectives twice, and messages, too, so it is not `seq` of python.collectives.",
        ),
        Column(name="backend", type="text", doc="Such as `gloo` or `nccl`."),
        *_WHAT,
        Column(name="is_p2p", type="bool", doc="Whether it is a message between two ranks."),
        Column(
            name="state",
            type="text",
            doc="`scheduled`, `started` or `completed`, as the backend says; gloo never says more"
            " than `scheduled`, see `is_over`.",
        ),
        Column(
            name="is_over",
            type="bool",
            doc="Whether it has ended, by its state, or because the recorder has retired it.",
        ),
        Column(name="timeout_s", type="float64", unit="s", doc="When torch gives it up."),
        Column(
            name="created_ns", type="time", unit="ns", doc="When it was entered, since the epoch."
        ),
        Column(
            name="started_ns",
            type="time",
            unit="ns",
            doc="When the device was seen to have begun it; NULL where that is not told.",
        ),
        Column(
            name="completed_ns",
            type="time",
            unit="ns",
            doc="When it was seen to have ended; NULL where that is not told.",
        ),
        Column(
            name="device_s",
            type="float64",
            unit="s",
            doc="What it took on the device, waiting for others there included; NULL unless NCCL"
            " times it: TORCH_NCCL_ENABLE_TIMING=1.",
        ),
    ),
)
