"""The files for clusters: valid by their systems' own rules, and of settings that exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from probing.settings import SETTINGS
from tests.harness.late import late
from tests.harness.targets import DEADLINE_S, ROOT

FOLDER = ROOT / "examples" / "cluster"
late("kubernetes_validate", reason="of tests/frameworks.txt, without torch not there")
yaml = late("yaml", reason="comes with kubernetes_validate")


def run(*argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in this environment if none is given."""
    return subprocess.run(
        argv,
        env=env or None,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.parametrize("version", [(), ("-k", "1.29")], ids=["newest", "oldest"])
def test_the_manifest_is_one(version: tuple[str, ...]) -> None:
    """Every object of it, by the schema of its kind, with no field that does not exist."""
    validate = Path(sys.executable).with_name("kubernetes-validate")
    done = run(validate, *version, "--strict", FOLDER / "kubernetes.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"passed for resource (\w+)/", done.stdout + done.stderr)
    assert passed == ["service", "job", "role"]


def test_the_script_of_slurm_is_one_of_the_shell() -> None:
    """What bash makes of it."""
    done = run("bash", "-n", FOLDER / "train.sbatch")
    assert (done.returncode, done.stderr) == (0, "")


def test_ranks_of_kubernetes_can_meet() -> None:
    """The trainer has what `init_process_group()` reads, and knows how many pods there are."""
    _, job, _ = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    (trainer,) = job["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value", one.get("valueFrom")) for one in trainer["env"]}
    name, pods = job["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"]
    assert env["MASTER_ADDR"] == f"{name}-0.{pods}"
    assert env["MASTER_PORT"].isdecimal()
    assert env["WORLD_SIZE"] == str(job["spec"]["completions"])
    assert "job-completion-index" in env["RANK"]["fieldRef"]["fieldPath"]


def test_ranks_of_slurm_can_meet(tmp_path: Path) -> None:
    """Each task has what `init_process_group()` reads: the first machine, and its own numbers."""
    programs = {
        "srun": "export SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NTASKS=16\n"
        '[ $1 = bash ] || exec sleep 60\nexec "$@"',
        "scontrol": "echo node7; echo node8",
        "python": "echo $MASTER_ADDR $MASTER_PORT $RANK $LOCAL_RANK $WORLD_SIZE $*",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o700)
    (tmp_path / ".config" / "probing").mkdir(parents=True)
    (tmp_path / ".config" / "probing" / "token").write_text("t")
    env = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env |= {"SLURM_NNODES": "2", "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "node[7-8]"}
    done = run("bash", FOLDER / "train.sbatch", **env)
    assert (done.returncode, done.stdout) == (0, "node7 14711 5 1 16 train.py\n"), done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_one(tmp_path: Path) -> None:
    """What systemd says of it, with a program that is there; also where it is for others."""
    unit = tmp_path / "probing-serve.service"
    text = (FOLDER / unit.name).read_text()
    assert "%h/.local/bin/probing serve" in text
    text = text.replace("%h/.local/bin/probing", sys.executable)
    own, others = text.split("ExecStart=")[1:]
    assert "--listen 127.0.0.1:" in own
    assert "--listen 0.0.0.0:" in others
    for_others = re.sub(r"^ExecStart=.*\n", "", text, count=1, flags=re.MULTILINE)
    for_others = re.sub(r"^# (?=ExecStart|EnvironmentFile)", "", for_others, flags=re.MULTILINE)
    for version in (text, for_others):
        unit.write_text(version)
        done = run("systemd-analyze", "verify", "--user", "--man=no", unit)
        told = [line for line in done.stderr.splitlines() if unit.name in line]
        assert told == [], version


@pytest.mark.parametrize("name", ["kubernetes.yaml", "train.sbatch", "probing-serve.service"])
def test_settings_are_known(name: str) -> None:
    """Every PROBING_ variable is declared."""
    found = set(re.findall(r"\bPROBING_[A-Z_]+\b", (FOLDER / name).read_text()))
    assert found
    assert found <= {setting.env for setting in SETTINGS}
