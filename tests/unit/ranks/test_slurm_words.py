"""What SLURM says of a job, and what is told where that leads to no node server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from probing.cluster.job.members import find_members
from probing.cluster.job.providers.slurm import slurm_hosts
from probing.errors import NotProbing, Unreachable

pytestmark = pytest.mark.anypython

FORGOTTEN = "slurm_load_jobs error: Invalid job id specified"
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
NOWHERE = "127.0.0.1:1"

Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a program of SLURM, which says something, where commands look; there is no other."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))

    def put(name: str, *lines: str, error: str = "") -> None:
        said = "\n".join(f"echo '{line}'" for line in lines)
        failed = f"echo '{error}' >&2; exit 1" if error else ""
        (programs / name).write_text(f"#!/bin/sh\n{said}\n{failed}\n")
        (programs / name).chmod(0o700)

    return put


@pytest.mark.parametrize(
    ("said", "hosts"),
    [
        (("RUNNING|gpu[1-2]",), ("gpu1:9741", "gpu2:9741")),
        (("COMPLETED|gpu1", "RUNNING|gpu2", "RUNNING|gpu2", "PENDING|"), ("gpu2:9741",)),
        (("SUSPENDED|gpu3",), ("gpu3:9741",)),
    ],
)
def test_the_nodes_of_a_job_that_runs(
    said: tuple[str, ...], hosts: tuple[str, ...], put: Put
) -> None:
    """Those of an array are the nodes of its jobs that run."""
    put("squeue", *said)
    assert slurm_hosts("4711", {}) == hosts


@pytest.mark.parametrize(
    ("squeue", "sacct", "says", "way_out"),
    [
        ("TIMEOUT|gpu[1-2]", None, "has ended (TIMEOUT), and its node", "-t job:4711 doctor"),
        ("TIMEOUT|gpu[1-2]", None, "has ended", "on its nodes (gpu[1-2]), or here"),
        ("", "CANCELLED by 1000|gpu7", "has ended (CANCELLED), and", "on its nodes (gpu7)"),
        ("", "PENDING|None assigned", "has no nodes yet (PENDING)", "squeue -j 4711"),
        ("", None, "SLURM knows no job 4711: it has ended long ago", "on its nodes, or here"),
        ("PENDING|", None, "SLURM job 4711 has no nodes yet (PENDING).", "Ask again once it runs"),
    ],
)
def test_a_job_without_nodes_is_told_apart(
    squeue: str, sacct: str | None, says: str, way_out: str, put: Put
) -> None:
    """One that waits, one that has ended, and one that nobody knows; each with what to do."""
    put("squeue", *[squeue] * bool(squeue), error="" if squeue else FORGOTTEN)
    if sacct is not None:
        put("sacct", sacct)
    with pytest.raises(Unreachable) as caught:
        slurm_hosts("4711", {})
    assert says in caught.value.message
    assert way_out in caught.value.help


def test_a_slurm_that_does_not_answer(put: Put) -> None:
    """Then nothing is said of the job: its nodes may be named."""
    for says in ("squeue is not installed here", "Unable to contact slurm controller"):
        with pytest.raises(Unreachable, match=says) as caught:
            slurm_hosts("4711", {})
        assert "-t slurm:node[1-4]" in caught.value.help
        put("squeue", error=AWAY)


@pytest.mark.parametrize(
    ("word", "env", "way_out"),
    [
        ("slurm:4711", {}, "`srun --overlap --jobid 4711 --ntasks 1 probing list --job`"),
        ("slurm:", {"SLURM_JOB_ID": "4712"}, "`srun --overlap --jobid 4712 --ntasks 1 probing"),
        ("job:4712", {"SLURM_JOB_ID": "4712"}, "`srun --overlap --jobid 4712 --ntasks 1 probing"),
        (f"slurm:{NOWHERE}", {}, "probing serve --listen 0.0.0.0:9741 &` with a certificate."),
        ("@hosts", {}, "`probing serve --listen 0.0.0.0:9741 --tls-cert FILE --tls-key FILE`"),
        (NOWHERE, {}, "Check host and port: `probing list` on that machine shows"),
    ],
)
def test_where_no_node_server_runs(
    word: str, env: dict[str, str], way_out: str, put: Put, tmp_path: Path
) -> None:
    """The way out is that of who named the machines, not of an address that is mistyped."""
    put("squeue", f"RUNNING|{NOWHERE}")
    (tmp_path / "hosts").write_text(NOWHERE)
    word = word.replace("@", f"@{tmp_path}/")
    with pytest.raises(NotProbing, match="refused") as caught:
        find_members([word], env={**env, "SLURM_JOB_NODELIST": NOWHERE} if env else {})
    assert way_out in caught.value.help
