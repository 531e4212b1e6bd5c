"""What launchers tell a process about its job, in its environment; else what torch tells.

Rules of this file: cheap, and imports nothing, for the agent loads it at its start. The first
launcher that knows wins, torchrun before all others: within SLURM, too, it is torchrun that gives
the ranks. A process group that is larger than what the launcher started wins over it, but in what
a rank has started: that is no rank.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_MPI_JOB = ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE")
"""What Open MPI calls what one mpirun has started: up to its version 4, and since version 5."""
_MOST_DIGITS = 9
_ATTEMPT = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


class Place(NamedTuple):
    """Where a process stands in its job.

    Attributes:
        rank: None where no launcher gave one, as all others.
        job: What the job is called.
        attempt: How often the launcher had started the job anew.
    """

    rank: int | None
    local_rank: int | None
    world_size: int | None
    job: str | None
    attempt: int


def place_in(env: Mapping[str, str]) -> Place:
    """What an environment says."""
    rank, local_rank = _first(env, _RANK), _first(env, _LOCAL_RANK)
    world_size = _first(env, _WORLD_SIZE)
    if rank is None and env.get("SLURM_STEP_ID"):  # in a batch script itself every rank would be 0
        rank = _first(env, ("SLURM_PROCID",))
        local_rank = _first(env, ("SLURM_LOCALID",))
        world_size = _first(env, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))
    if rank is None:
        rank = _first(env, ("JOB_COMPLETION_INDEX",))
    return Place(rank, local_rank, world_size, job_in(env), _first(env, _ATTEMPT) or 0)


def place_now(
    job: str | None,
    group: tuple[int, int] | None,
    *,
    is_helper: Callable[[int], bool] = lambda _: False,
) -> Place:
    """Where this process stands; torch's process group says so where no launcher knows it.

    A launcher names no rank, or that of the process whose children the ranks are: they inherit its
    variables, and their group is larger than what it started.

    Args:
        job: What the job is called, where its user says so.
        group: As `torch_group` says.
        is_helper: Tells, by the size of the group, whether a rank of another has started this
            process, as one that trains starts an inference engine. Only asked where it matters.
    """
    place = place_in(os.environ)
    is_larger = group is not None and group[1] > max(1, place.world_size or 0)
    if group is not None and (place.rank is None or (is_larger and not is_helper(group[1]))):
        meets = [os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")]
        named = place.job or (":".join(meets) if all(meets) else None)
        local_rank = place.local_rank if place.rank is None else None
        place = Place(group[0], local_rank, group[1], named, place.attempt)
    return place._replace(job=job) if job else place


def torch_group() -> tuple[int, int] | None:
    """The rank of this process in torch's default group, and its size; None where there is none."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if not (distributed.is_available() and distributed.is_initialized()):
            return None
        return int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception:  # noqa: BLE001 - it is not there, half imported, or ends at this moment
        return None


def job_in(env: Mapping[str, str]) -> str | None:
    """What the job is called: as its user says, else as its launcher does.

    A job to which nobody gave a name has that of the place where its ranks meet.
    """
    if env.get("PROBING_JOB"):
        return env["PROBING_JOB"]
    run = env.get("TORCHELASTIC_RUN_ID", "")
    if run and run != "none":  # what torchrun says without --rdzv-id
        return run
    if env.get("SLURM_JOB_ID"):
        return env["SLURM_JOB_ID"]
    if not run:  # torchrun, started by mpirun, makes a job of its own
        for name in _MPI_JOB:
            if env.get(name):
                return env[name]
    if env.get("RANK") and env.get("MASTER_ADDR") and env.get("MASTER_PORT"):
        return f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    return None


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """The first of some variables that holds a number."""
    for name in names:
        text = env.get(name, "")
        if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
            return int(text)
    return None
