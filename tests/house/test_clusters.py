"""The files for clusters: valid by their systems' own rules, and of settings that exist."""

from __future__ import annotations

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


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_the_manifest_is_one() -> None:
    """Every object of it, by the schema of its kind, with no field that does not exist."""
    validate = Path(sys.executable).with_name("kubernetes-validate")
    done = run(validate, "--strict", FOLDER / "kubernetes.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"passed for resource (\w+)/", done.stdout + done.stderr)
    assert passed == ["service", "job", "role"]


def test_the_script_of_slurm_is_one_of_the_shell() -> None:
    """What bash makes of it."""
    done = run("bash", "-n", FOLDER / "train.sbatch")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_one(tmp_path: Path) -> None:
    """What systemd says of it, with a program that is there."""
    unit = tmp_path / "probing-serve.service"
    text = (FOLDER / unit.name).read_text()
    assert "%h/.local/bin/probing serve" in text
    unit.write_text(text.replace("%h/.local/bin/probing", sys.executable))
    done = run("systemd-analyze", "verify", "--user", "--man=no", unit)
    told = [line for line in done.stderr.splitlines() if unit.name in line]
    assert told == []


@pytest.mark.parametrize("name", ["kubernetes.yaml", "train.sbatch", "probing-serve.service"])
def test_settings_are_known(name: str) -> None:
    """Every PROBING_ variable is declared."""
    found = set(re.findall(r"\bPROBING_[A-Z_]+\b", (FOLDER / name).read_text()))
    assert found
    assert found <= {setting.env for setting in SETTINGS}
