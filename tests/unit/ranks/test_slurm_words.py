"""What SLURM says of a job, and what is told where that leads to no node server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from probing.cluster.job.members import find_members
from probing.cluster.job.providers.slurm import slurm_hosts
from probing.cluster.job.providers.slurm_ids import job_of
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
    assert slurm_hosts("4711", {}).addresses == hosts


ARRAY = (
    *("PENDING||4711_4|4711", "PENDING||4711_5|4711", "RUNNING|gpu3|4711_3|4714"),
    *("RUNNING|gpu2|4711_2|4713", "COMPLETED|gpu1|4711_1|4712"),
)
GROUP = ("RUNNING|cpu1|4711+0|4711", "RUNNING|gpu[1-2]|4711+1|4712")
"""What squeue says of an array and of a heterogeneous job, each part with its number."""


@pytest.mark.parametrize(
    ("word", "said", "hosts", "step"),
    [
        ("4711_3", ARRAY, ("gpu3:9741",), "4714"),
        ("4711_3.0", ARRAY, ("gpu3:9741",), "4714"),
        ("4711_[1-5]", ARRAY, ("gpu3:9741", "gpu2:9741"), "4714"),
        ("4711_[1,2-9:2%4]", ARRAY, ("gpu2:9741",), "4713"),
        ("4711", ARRAY, ("gpu3:9741", "gpu2:9741"), "4714"),
        ("4711.batch", ARRAY[-2:], ("gpu2:9741",), "4713"),
        ("4711+1", GROUP, ("gpu1:9741", "gpu2:9741"), "4711 --het-group=1"),
        ("4711", GROUP, ("cpu1:9741", "gpu1:9741", "gpu2:9741"), "4711 --het-group=0"),
    ],
)
def test_the_nodes_of_a_part_of_a_job(
    word: str, said: tuple[str, ...], hosts: tuple[str, ...], step: str, put: Put
) -> None:
    """A task of an array, some of them, a component; and the number that `srun` has for it."""
    put("squeue", *said)
    found = slurm_hosts(word, {})
    assert found.addresses == hosts
    assert f"`srun --overlap --jobid {step} --ntasks 1 probing list --job`" in found.no_server


@pytest.mark.parametrize(
    ("word", "says", "way_out"),
    [
        ("4711_1", "SLURM job 4711_1 has ended (COMPLETED), and", "-t job:4712 doctor` where"),
        ("4711_[4-5]", "SLURM job 4711_[4-5] has no nodes yet (PENDING)", "`squeue -j 4711`"),
        ("4711_9", "SLURM knows no job 4711_9: it has", "the NUMBER that `probing list --dead`"),
        ("4711+7", "SLURM knows no job 4711+7: it has", "-t job:4711 doctor`"),
    ],
)
def test_a_part_without_nodes_is_told_apart(word: str, says: str, way_out: str, put: Put) -> None:
    """What it has recorded is under the number that it has of its own."""
    put("squeue", *ARRAY)
    with pytest.raises(Unreachable) as caught:
        slurm_hosts(word, {})
    assert says in caught.value.message
    assert way_out in caught.value.help


@pytest.mark.parametrize("word", ["4711_[1", "4711_[a]", "4711_[1-9:0]", "node_3", "4711+x", "n1"])
def test_what_names_no_job(word: str) -> None:
    """It is a list of nodes, or a mistake in one."""
    assert job_of(word) is None


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
