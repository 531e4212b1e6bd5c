"""Jobs of a real SLURM, started and asked as docs/how-to/clusters.md has it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import slurm
from tests.harness.cluster_page import NODE_PORT, STEPS_OF_RANKS, is_port_taken, section
from tests.harness.targets import DEADLINE_S, ROOT, program_path, wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not slurm.is_installed(), reason="slurm-wlm and root are not both here"),
]
_SECTION = section("SLURM")


def _lines(begin: str) -> list[str]:
    """The commands of the page's section that begin so."""
    found = [line for line in _SECTION.splitlines() if line.startswith(begin)]
    assert found, begin
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[slurm.Slurm]:
    """A cluster whose user has a certificate, a token and a training of two ranks."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    made = slurm.Slurm(tmp_path, HOME=str(tmp_path), PATH=programs)
    own = tmp_path / ".config" / "probing"
    own.mkdir(parents=True)
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    words += f" -subj /CN=probing -keyout {own}/key.pem -out {own}/cert.pem"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    (own / "token").write_text("t" * 64)
    (own / "token").chmod(0o600)
    shutil.copy(program_path("on_slurm"), tmp_path / "train.py")
    shutil.copy(ROOT / "examples" / "cluster" / "train.sbatch", tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _wait_for_steps(cluster: slurm.Slurm, job: str, word: str, **extra: str) -> None:
    """Wait until both ranks have some steps on record."""

    def asked() -> bool:
        assert cluster.state(job).startswith(("RUNNING", "PENDING")), cluster.output(job)
        argv = ["probing", "-t", word, "query", STEPS_OF_RANKS, "--json"]
        done = cluster.run(*argv, **extra)
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        return [row["rank"] for row in rows if row["steps"] > 3] in ([0, 1], [1, 0])

    wait_until(asked, "steps of both ranks", 2 * DEADLINE_S)


@pytest.mark.skipif(is_port_taken(), reason=f"another listens on port {NODE_PORT}")
def test_the_script_of_the_page_is_asked_from_outside(cluster: slurm.Slurm) -> None:
    """`sbatch train.sbatch`, each command of the page, and every step that the ranks counted.

    Once it has ended, who asks its nodes is told so, and where the record is.
    """
    job = cluster.submit("--nodes=1", "--ntasks-per-node=2", "train.sbatch")
    exports = "\n".join(_lines("export PROBING_T"))
    said = cluster.run("bash", "-ec", f"{exports}\nenv").stdout
    trust = dict(re.findall(r"^(PROBING_T\w+)=(.+)$", said, re.MULTILINE))
    outside = {**trust, "PROBING_HOME": str(cluster.folder / "login")}
    _wait_for_steps(cluster, job, f"slurm:{job}", **outside)
    for line in _lines("probing -t slurm:"):
        done = cluster.run("bash", "-c", line.replace("4711", job), **outside)
        assert (done.returncode, done.stderr.count("error")) == (0, 0), (line, done)
        told = "healthy: process" if "doctor" in line else f"job {job}: 2 of 2 ranks seen"
        assert told in done.stdout, (line, done)
    (cluster.folder / "stop").touch()
    wait_until(lambda: cluster.state(job) == "COMPLETED 0:0", "the end of the job", DEADLINE_S)
    assert not is_port_taken(), "the node server outlived its job"
    done = cluster.run("probing", "-t", f"slurm:{job}", "tables", **outside)
    assert done.returncode == 3
    assert f"SLURM job {job} has ended (COMPLETED)" in done.stderr
    assert f"`probing -t job:{job} doctor`" in done.stderr
    assert f"on its nodes ({slurm.NODE})" in done.stderr
    rows = json.loads(
        cluster.run("probing", "-t", f"job:{job}", "query", STEPS_OF_RANKS, "--json").stdout
    )
    counted = {rank: int((cluster.folder / f"steps-{rank}").read_text()) for rank in (0, 1)}
    assert {row["rank"]: row["steps"] for row in rows} == counted


def test_a_prolog_has_all_recorded_and_a_step_asks(cluster: slurm.Slurm) -> None:
    """With the page's line of a task prolog alone, ranks are asked from within their allocation."""
    (prolog,) = _lines("echo export")
    cluster.say_before_tasks(prolog)
    batch = "#!/bin/bash\nsrun --ntasks=2 python train.py\n"
    (cluster.folder / "plain.sbatch").write_text(batch)
    job = cluster.submit("--ntasks=2", "plain.sbatch")
    _wait_for_steps(cluster, job, f"job:{job}")
    for line in _lines("srun --overlap"):
        done = cluster.run("bash", "-c", line.replace("4711", job), PROBING="0")
        assert done.returncode == 0, (line, done)
        assert "train.py" in done.stdout or f"job {job}: 2 of 2 ranks" in done.stdout, (line, done)
    (cluster.folder / "stop").touch()
    wait_until(lambda: cluster.state(job) == "COMPLETED 0:0", "the end of the job", DEADLINE_S)


@pytest.mark.skipif(is_port_taken(), reason=f"another listens on port {NODE_PORT}")
def test_a_task_of_an_array_is_asked_by_its_name(cluster: slurm.Slurm) -> None:
    """Without node server it is told how to ask its node; then, by which number its record is.

    One that was cancelled says who asked it to end.
    """
    cluster.say_before_tasks("echo export PROBING=1")
    batch = "#!/bin/bash\nsrun --ntasks=1 python train.py\n"
    (cluster.folder / "plain.sbatch").write_text(batch)
    array = cluster.submit("--array=3,7", "--ntasks=1", "plain.sbatch")
    task = f"{array}_7"

    def answer() -> str:
        told = cluster.run("probing", "-t", f"slurm:{task}", "list", "--job").stderr
        step = re.search(r"Without, `([^`]+)`", told)
        return cluster.run("bash", "-c", step[1], PROBING="0").stdout if step else ""

    wait_until(lambda: "2 processes seen" in answer(), "both tasks", 2 * DEADLINE_S)
    job = cluster.run("squeue", "-h", "-j", task, "-o", "%A").stdout.strip()
    cluster.run("scancel", task)
    wait_until(lambda: cluster.state(task).startswith("CANCELLED"), "the end", DEADLINE_S)
    done = cluster.run("probing", "-t", f"slurm:{task}", "tables")
    assert done.returncode == 3
    assert f"SLURM job {task} has ended (CANCELLED)" in done.stderr
    (asked,) = re.findall(rf"`probing (-t job:{job} doctor)`", done.stderr)

    def said() -> str:
        told = cluster.run("probing", *asked.split())
        return " ".join((told.stdout + told.stderr).split())

    wait_until(lambda: "(slurmstepd) at" in said(), said(), DEADLINE_S)
    (cluster.folder / "stop").touch()
