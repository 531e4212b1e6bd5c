"""`scripts/gpu`: it runs here, on a made-up CUDA, and goes on after whatever fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import findings
from tests.gpu.__main__ import NAMES
from tests.gpu.findings import Finding
from tests.harness.targets import DEADLINE_S, ROOT


def run_script(*arguments: str, out: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """The script, with this Python and no device."""
    return subprocess.run(
        [str(ROOT / "scripts" / "gpu"), *arguments, "--out", str(out)],
        env={**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


@pytest.mark.anypython
def test_findings_come_back_from_the_output_of_a_check() -> None:
    """Each is a line among others; the table and the page have all of them."""
    told = [
        findings.expect("bits", "same", must="same"),
        findings.limit("slowdown", 1.5, most=1.0, unit="%"),
        findings.left_out("NVML", "not installed"),
    ]
    lines = ["a warning of torch's", *map(findings.encode_finding, told)]
    assert findings.decode_findings(lines) == told
    assert [one.verdict for one in told] == [findings.HOLDS, findings.MISSED, findings.LEFT_OUT]
    results = {"a": told[:1], "b": told[1:]}
    assert not findings.is_good(results)
    assert findings.is_good({"a": told[:1]})
    page = findings.markdown(results, {"device": "none"}, is_fake=True, seconds=3)
    assert page.startswith("On a made-up CUDA")
    assert "| b | slowdown | 1.5 % | at most 1 % | **MISSED** |" in page
    assert len(findings.plain(results).splitlines()) == 2 + len(told)


@pytest.mark.anypython
def test_a_python_without_torch_is_told_in_a_sentence(tmp_path: Path) -> None:
    """With what to do; no check begins."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [str(ROOT / "scripts" / "gpu"), "--fake", "--out", str(tmp_path / "out.md")],
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert done.stderr.endswith("has no torch: set PYTHON to one that has\n")
    assert not (tmp_path / "out.md").exists()


@pytest.mark.anypython
def test_a_process_that_dies_is_a_row() -> None:
    """Whatever it had found before stays."""
    from tests.gpu.__main__ import _endings

    assert _endings(0, "all is well", 10) == []
    told = _endings(-6, "terminate called after throwing an instance of 'c10::Error'\n", 10)
    assert [(one.found, one.verdict) for one in told] == [
        ("died of signal 6", findings.FAILED),
        ("terminate called after throwing an instance of 'c10::Error'", findings.FAILED),
    ]
    (late,) = _endings(None, "", 10)
    assert late == Finding("the check", "took longer than 10 s", "ends", findings.FAILED)


@pytest.mark.torch
@pytest.mark.nightly
def test_it_goes_on_after_a_check_that_fails(tmp_path: Path) -> None:
    """Without a device most checks fail, each in a row; the others hold, and the page is there."""
    page = tmp_path / "gpu.md"
    done = run_script("memory", "no context", out=page, timeout_s=200)
    assert done.returncode == 1, done.stderr
    rows = page.read_text("utf-8").splitlines()
    assert any(row.startswith("| memory | the check itself") and "FAILED" in row for row in rows)
    assert "| no context | CUDA is in use | False | False | holds |" in rows


@pytest.mark.torch
def test_each_check_has_its_function() -> None:
    """The command, which needs no torch, names just what there is, in that order."""
    from tests.gpu.checks import CHECKS

    assert list(CHECKS) == list(NAMES)
    assert sum(NAMES.values()) <= 720, "nine minutes, as few take as long as they may"


@pytest.mark.torch
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_every_check_runs_on_a_made_up_device(tmp_path: Path) -> None:
    """So that nothing in it is seen for the first time on a real one."""
    done = run_script("--fake", out=tmp_path / "gpu.md", timeout_s=1500)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert all(name in done.stdout for name in NAMES)
