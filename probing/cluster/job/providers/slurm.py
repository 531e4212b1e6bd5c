"""The nodes of a SLURM allocation.

Rules of this file: a list is expanded by `scontrol` where it is installed, else by ourselves. What
has no nodes is told apart: a job that waits, one that has ended, one that nobody knows.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from ....errors import BadEndpoint, Unreachable
from .addresses import with_port
from .hostlist import expand_hosts
from .slurm_ids import SlurmJob, job_of

_COMMAND_S = 5.0
_NAME_THEM = "Name them: `-t slurm:node[1-4]`."
_UNKNOWN = "Invalid job id"
"""What squeue says of a job that it has forgotten, or never knew."""
_ENDED = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED"),
        *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"),
    )
)
_WAITING = frozenset(
    ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
)
"""The states of jobs in which they run nowhere; in all others they have nodes."""
_NO_SERVER = (
    "No node server listens there: start one on each node in the job's script, by `srun --overlap"
    " --ntasks-per-node=1 probing serve --listen 0.0.0.0:9741 &` with a certificate"
)
_MOST_NAMES = 4


class SlurmHosts(NamedTuple):
    """Where ``slurm:...`` leads to.

    Attributes:
        addresses: Those of node servers.
        no_server: What to do where none runs there.
    """

    addresses: tuple[str, ...]
    no_server: str


class _Part(NamedTuple):
    """A job, or one of an array or of a group of jobs.

    Attributes:
        shown: What SLURM shows it as.
        number: The number that `SLURM_JOB_ID` has in it, by which it is recorded and srun takes it.
    """

    state: str
    nodes: str
    shown: str
    number: str


def slurm_hosts(word: str, env: Mapping[str, str]) -> SlurmHosts:
    """The addresses of node servers that ``slurm:...`` means.

    Args:
        word: A list of nodes, what SLURM calls a job, or nothing for the allocation that the
            command runs in.

    Raises:
        BadEndpoint: There is no allocation, or no such list.
        Unreachable: SLURM does not tell.
    """
    job, lists, step = job_of(word), [word], ""
    if not word:
        lists, step = [env.get("SLURM_JOB_NODELIST", "")], env.get("SLURM_JOB_ID", "")
        if not lists[0]:
            raise BadEndpoint("slurm:", "SLURM_JOB_NODELIST is not set, so this is no allocation")
    elif job is not None:
        parts = _running_parts(job)
        lists, step = [part.nodes for part in parts], _step(parts[0])
    hosts = dict.fromkeys(host for nodes in lists for host in _expanded(nodes))
    return SlurmHosts(tuple(with_port(host) for host in hosts), _no_server(step))


def _no_server(step: str) -> str:
    """What to do where no node server runs; with what `srun` takes to run a step there, if any."""
    inside = f"srun --overlap --jobid {step} --ntasks 1 probing list --job"
    return f"{_NO_SERVER}. Without, `{inside}` asks on a node itself." if step else f"{_NO_SERVER}."


def _step(part: _Part) -> str:
    """What `srun --jobid` takes for a part: no name of a task, nor of a component."""
    job = job_of(part.shown)
    if job is None or job.component is None:
        return part.number
    return f"{part.number} --het-group={job.component}"


def _expanded(nodes: str) -> tuple[str, ...]:
    scontrol = shutil.which("scontrol")
    if scontrol is not None:
        done = _run([scontrol, "show", "hostnames", nodes])
        if done is not None and not done.returncode and done.stdout.split():
            return tuple(done.stdout.split())
    return expand_hosts(nodes)


def _running_parts(job: SlurmJob) -> list[_Part]:
    """A job, or those parts of it that run and that are meant.

    Raises:
        Unreachable: It has ended, or has not begun, or nobody tells.
    """
    squeue = shutil.which("squeue")
    if squeue is None:
        why = "squeue is not installed here, so nobody can tell"
        raise Unreachable(f"{why} the nodes of SLURM job {job.name}.", help=_NAME_THEM)
    each = ["-r"] * (job.tasks is not None)  # a task is a row of its own before it begins, too
    done = _run([squeue, "-h", *each, "-t", "all", "-j", job.number, "-o", "%T|%N|%i|%A"])
    if done is None or (done.returncode and _UNKNOWN not in done.stderr):
        why = "it did not answer" if done is None else " ".join(done.stderr.split()[-12:])
        raise Unreachable(
            f"squeue does not tell the nodes of SLURM job {job.name}: {why.rstrip('.')}.",
            help=_NAME_THEM,
        )
    parts = _parts(done, job) or _kept_parts(job)
    running = [part for part in parts if part.nodes and part.state not in _ENDED | _WAITING]
    if not running:
        raise _without_nodes(job, parts)
    return running


def _parts(done: subprocess.CompletedProcess[str] | None, job: SlurmJob) -> list[_Part]:
    """The jobs in an answer that are meant, which for an array are several."""
    if done is None or done.returncode:
        return []
    found = []
    for line in done.stdout.splitlines():
        if "|" in line:
            state, nodes, shown, number = (*map(str.strip, line.split("|")), "", "")[:4]
            if "+" in shown:
                number = shown.partition("+")[0]  # what all components have
            # sacct says `CANCELLED by 1000`, and `None assigned` of a job that waits.
            found.append(_Part((state.split() or [""])[0], nodes, shown, number or job.number))
    return [part for part in found if job.has(part.shown)]


def _kept_parts(job: SlurmJob) -> list[_Part]:
    """The same of a job that SLURM's controller has forgotten, where its accounting knows it."""
    sacct = shutil.which("sacct")
    if sacct is None:
        return []
    columns = "State,NodeList,JobID,JobIDRaw"
    return _parts(_run([sacct, "-n", "-X", "-P", "-j", job.number, "-o", columns]), job)


def _without_nodes(job: SlurmJob, parts: list[_Part]) -> Unreachable:
    """The error for a job that runs nowhere now."""
    states = ", ".join(dict.fromkeys(part.state for part in parts))
    if any(part.state not in _ENDED for part in parts):
        return Unreachable(
            f"SLURM job {job.name} has no nodes yet ({states}).",
            help=f"Ask again once it runs; `squeue -j {job.number}` shows what it waits for.",
        )
    nodes = ",".join(dict.fromkeys(part.nodes for part in parts if part.nodes))
    what = f"SLURM job {job.name} has ended ({states}), and its node servers with it."
    if not parts:
        what = f"SLURM knows no job {job.name}: it has ended long ago, or there was none."
    where = f"on its nodes{f' ({nodes})' if nodes else ''}, or here if it is in a shared folder"
    return Unreachable(
        what,
        help=f"What it has recorded answers to {_command(job, parts)} where its run directory is:"
        f" {where}, with that as PROBING_HOME. `probing history` has runs that were kept.",
    )


def _command(job: SlurmJob, parts: list[_Part]) -> str:
    """What asks for the record of a job, which in the script has a number and no more."""
    names = list(dict.fromkeys(part.number for part in parts if part.nodes))
    if not names and job.tasks is not None:
        return "`probing -t job:NUMBER doctor`, with the NUMBER that `probing list --dead` shows,"
    words = " ".join(f"-t job:{name}" for name in (names or [job.number])[:_MOST_NAMES])
    return f"`probing {words} doctor`"


def _run(argv: list[str]) -> subprocess.CompletedProcess[str] | None:
    """What a program of SLURM answers; None where it does not, or not in time."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
