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


class _Part(NamedTuple):
    """A job, or one of an array."""

    state: str
    nodes: str


def slurm_hosts(word: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The addresses of node servers that ``slurm:...`` means.

    Args:
        word: A list of nodes, the number of a job, or nothing for the allocation that the command
            runs in.

    Raises:
        BadEndpoint: There is no allocation, or no such list.
        Unreachable: SLURM does not tell.
    """
    lists = [word]
    if not word:
        lists = [env.get("SLURM_JOB_NODELIST", "")]
        if not lists[0]:
            raise BadEndpoint("slurm:", "SLURM_JOB_NODELIST is not set, so this is no allocation")
    elif word.isdecimal():
        lists = _nodes_of_job(word)
    hosts = dict.fromkeys(host for nodes in lists for host in _expanded(nodes))
    return tuple(with_port(host) for host in hosts)


def no_server(word: str, env: Mapping[str, str]) -> str:
    """What to do where no node server runs on the nodes that ``slurm:...`` means."""
    told = (
        "No node server listens there: start one on each node in the job's script, by `srun"
        " --overlap --ntasks-per-node=1 probing serve --listen 0.0.0.0:9741 &` with a certificate"
    )
    job = word if word.isdecimal() else "" if word else env.get("SLURM_JOB_ID", "")
    inside = f"srun --overlap --jobid {job} --ntasks 1 probing list --job"
    return f"{told}. Without, `{inside}` asks on a node itself." if job else f"{told}."


def _expanded(nodes: str) -> tuple[str, ...]:
    scontrol = shutil.which("scontrol")
    if scontrol is not None:
        done = _run([scontrol, "show", "hostnames", nodes])
        if done is not None and not done.returncode and done.stdout.split():
            return tuple(done.stdout.split())
    return expand_hosts(nodes)


def _nodes_of_job(number: str) -> list[str]:
    """The lists of nodes of a job, or of those of an array that run.

    Raises:
        Unreachable: It has ended, or has not begun, or nobody tells.
    """
    squeue = shutil.which("squeue")
    if squeue is None:
        why = "squeue is not installed here, so nobody can tell"
        raise Unreachable(f"{why} the nodes of SLURM job {number}.", help=_NAME_THEM)
    done = _run([squeue, "-h", "-t", "all", "-j", number, "-o", "%T|%N"])
    if done is None or (done.returncode and _UNKNOWN not in done.stderr):
        why = "it did not answer" if done is None else " ".join(done.stderr.split()[-12:])
        raise Unreachable(
            f"squeue does not tell the nodes of SLURM job {number}: {why.rstrip('.')}.",
            help=_NAME_THEM,
        )
    parts = _parts(done) or _kept_parts(number)
    nodes = [part.nodes for part in parts if part.nodes and part.state not in _ENDED | _WAITING]
    if not nodes:
        raise _without_nodes(number, parts)
    return nodes


def _parts(done: subprocess.CompletedProcess[str] | None) -> list[_Part]:
    """The jobs in an answer, which for an array are several."""
    if done is None or done.returncode:
        return []
    rows = (line.partition("|") for line in done.stdout.splitlines() if "|" in line)
    # sacct says `CANCELLED by 1000`, and `None assigned` of a job that waits.
    return [_Part((state.split() or [""])[0], nodes.strip()) for state, _, nodes in rows]


def _kept_parts(number: str) -> list[_Part]:
    """The same of a job that SLURM's controller has forgotten, where its accounting knows it."""
    sacct = shutil.which("sacct")
    if sacct is None:
        return []
    return _parts(_run([sacct, "-n", "-X", "-P", "-j", number, "-o", "State,NodeList"]))


def _without_nodes(number: str, parts: list[_Part]) -> Unreachable:
    """The error for a job that runs nowhere now."""
    states = ", ".join(dict.fromkeys(part.state for part in parts))
    if any(part.state not in _ENDED for part in parts):
        return Unreachable(
            f"SLURM job {number} has no nodes yet ({states}).",
            help=f"Ask again once it runs; `squeue -j {number}` shows what it waits for.",
        )
    nodes = ",".join(dict.fromkeys(part.nodes for part in parts if part.nodes))
    what = f"SLURM job {number} has ended ({states}), and its node servers with it."
    if not parts:
        what = f"SLURM knows no job {number}: it has ended long ago, or there was none."
    return Unreachable(
        what,
        help=f"What it has recorded answers to `probing -t job:{number} doctor` where its run"
        f" directory is: on its nodes{f' ({nodes})' if nodes else ''}, or here if it is in a"
        " shared folder, with that as PROBING_HOME. `probing history` has runs that were kept.",
    )


def _run(argv: list[str]) -> subprocess.CompletedProcess[str] | None:
    """What a program of SLURM answers; None where it does not, or not in time."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
