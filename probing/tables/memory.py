"""The tables of memory: what was in use at each phase of each step, and what the host says."""

from __future__ import annotations

from .columns import SEQ, STEP
from .records import Table, choice, closing, count, moment, number, size, text

MEMORY_PHASES = (
    "attach",
    "before_forward",
    "after_forward",
    "after_backward",
    "after_step",
    "mark",
)
"""The moments at which a row of python.memory is written."""

PROCESS_ROLES = ("trainer", "data_worker", "probing", "child")
"""What a process of a job is there for."""


MEMORY = Table(
    name="memory",
    kind="recorded",
    doc="Memory in use at the phases of each step and micro-batch. Where that would cost more"
    " than a twentieth of `overhead`, only some steps have rows, and those after a new"
    " peak. Peaks are reset only by a `mark` that asks for it.",
    columns=(
        STEP,
        count("micro_batch", "The micro-batch of the step, from 0."),
        choice(
            "phase",
            MEMORY_PHASES,
            "`attach`: recording begins, or a device is first in use: the baseline."
            " `before_forward`, `after_forward` (or the last root module has returned),"
            " `after_backward`: once per micro-batch. `after_step`. `mark`:"
            " `probing.see_memory(label)` or `memory --gc`.",
        ),
        text("label", "What the script calls a `mark`."),
        *closing(
            text("device", "Whose figures these are: `cuda:0`; `cpu` where no device is in use."),
            moment("time_ns", "When it was, since the epoch."),
            size("allocated_bytes", "What the device's allocator has handed out."),
            size("peak_bytes", "The most of that since the program last reset its peaks."),
            size("reserved_bytes", "What the allocator has taken from the device."),
            size("peak_reserved_bytes", "The most of that, as `peak_bytes`."),
            size(
                "device_used_bytes",
                "In use on the whole device, by all programs, about a second old; it needs the"
                " package nvidia-ml-py.",
            ),
            size("device_total_bytes", "What the device has, as NVML tells it."),
            size("resident_bytes", "The process's resident set."),
            size(
                "mapped_bytes",
                "Of it, pages of files and of shared memory; those of files the kernel can drop.",
            ),
            size(
                "virtual_bytes",
                "The process's address space: what it has asked for, used or not.",
            ),
            size(
                "cgroup_bytes",
                "In use in the process's memory cgroup (the one with the tightest limit), file"
                " cache included; 100 ms old at most.",
            ),
            size(
                "cgroup_cache_bytes",
                "Of it, file cache, which the kernel drops before it kills; one second old at most,"
                " and from nine tenths of the limit on as old as `cgroup_bytes`.",
            ),
            size("cgroup_limit_bytes", "What that cgroup may use; one second old at most."),
            count("cgroup_oom_kills", "Processes in that cgroup killed by the kernel OOM killer."),
            size(
                "node_used_bytes",
                "What the machine could not give to a program; 100 ms old at most.",
            ),
            size("node_total_bytes", "What the machine has."),
            count("gc_ns", "How long garbage was collected just before, for a `mark`.", unit="ns"),
        ),
        SEQ,
    ),
)

HOST_MEMORY = Table(
    name="host_memory",
    kind="live",
    doc="Host memory of the trainer, its child processes and its agent's, by the kernel, also in a"
    " hang.",
    columns=(
        count("pid", "The process."),
        choice(
            "role",
            PROCESS_ROLES,
            "`trainer`; `data_worker`: of a `DataLoader`; `probing`: the agent's SQL worker, its"
            " parent, or another process of ours; `child`: any other.",
        ),
        text("name", "What the kernel calls it."),
        size("resident_bytes", "Its resident set, shared memory included."),
        size(
            "proportional_bytes",
            "Resident, each shared page divided by its number of processes: adds up over the job.",
        ),
        size("shared_bytes", "Of the resident set, what is shared."),
        size("private_bytes", "Of the resident set, what is not: what its end would free."),
        size("swap_bytes", "What of it is swapped out."),
        size(
            "locked_bytes",
            "Locked memory, page-locked by a driver included where the kernel counts that.",
        ),
        size(
            "shm_bytes",
            "Files in /dev/shm that it has open or mapped, probing's rings included, each for"
            " the first process that holds it.",
        ),
        count("threads", "How many threads it has."),
        size("cgroup_bytes", "In use in its memory cgroup, as in python.memory."),
        size(
            "cgroup_working_bytes",
            "In use without droppable file cache: at the limit, the kernel kills.",
        ),
        size("cgroup_limit_bytes", "What that cgroup may use."),
        count("cgroup_oom_kills", "Processes in that cgroup killed by the kernel OOM killer."),
        number(
            "pressure_some",
            "The share of the last ten seconds in which some process waited for memory: in"
            " its cgroup, else in the machine.",
        ),
        number("pressure_full", "The same, in which all of them waited."),
    ),
)
