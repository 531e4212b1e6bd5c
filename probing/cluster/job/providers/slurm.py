"""The nodes of a SLURM allocation.

Rules of this file: a list is expanded by `scontrol` where it is installed, else by ourselves.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

from ....errors import BadEndpoint, Unreachable
from .addresses import with_port
from .hostlist import expand_hosts

_COMMAND_S = 5.0


def slurm_hosts(word: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The addresses of node servers that ``slurm:...`` means.

    Args:
        word: A list of nodes, the number of a job, or nothing for the allocation that the command
            runs in.

    Raises:
        BadEndpoint: There is no allocation, or no such list.
        Unreachable: SLURM does not tell.
    """
    nodes = word
    if not word:
        nodes = env.get("SLURM_JOB_NODELIST", "")
        if not nodes:
            raise BadEndpoint("slurm:", "SLURM_JOB_NODELIST is not set, so this is no allocation")
    elif word.isdecimal():
        nodes = _nodes_of_job(word)
    return tuple(with_port(host) for host in _expanded(nodes))


def _expanded(nodes: str) -> tuple[str, ...]:
    scontrol = shutil.which("scontrol")
    if scontrol is not None:
        lines = _output_of([scontrol, "show", "hostnames", nodes])
        if lines:
            return tuple(lines)
    return expand_hosts(nodes)


def _nodes_of_job(number: str) -> str:
    squeue = shutil.which("squeue")
    lines = _output_of([squeue, "-h", "-j", number, "-o", "%N"]) if squeue else None
    if not lines:
        why = "does not tell" if squeue else "is not installed here, so nobody can tell"
        raise Unreachable(
            f"squeue {why} the nodes of SLURM job {number}.",
            help="Name them: `-t slurm:node[1-4]`.",
        )
    return lines[0]


def _output_of(argv: list[str]) -> list[str] | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.split() if done.returncode == 0 else None
