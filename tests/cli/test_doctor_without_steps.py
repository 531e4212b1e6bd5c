"""`probing doctor` on what makes no steps: a loop that swallows its errors, an import, no agent."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.doctor import examine, sure
from tests.harness.targets import Target

Start = Callable[..., Target]

_SLOW_TORCH = """
print("begun", flush=True)
while True:
    sum(range(10_000))
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("way", "rule", "words"),
    [
        ("loss", "no-backward", "no backward pass has followed"),
        pytest.param("forward", "failing-calls", "64 of the last 64", marks=pytest.mark.nightly),
    ],
)
def test_a_loop_that_swallows_its_errors_is_told(
    program: Start, way: str, rule: str, words: str
) -> None:
    """That no step comes of the calls is likely a fault, and progress is not called healthy."""
    target = program("swallowing", way)
    target.wait_for_agent()
    target.wait_for_output("round 120")
    report = examine(target)
    assert sure(report) == [rule], report
    (finding,) = (one for one in report["findings"] if one["rule"] == rule)
    assert words in finding["summary"]
    assert "no step has been made" in finding["summary"]
    assert "except" in finding["fix"]
    assert not {"progress", "loss"} & set(report["healthy"])


@pytest.mark.torch
@pytest.mark.parametrize(
    "way", ["evaluation", pytest.param("inference", marks=pytest.mark.nightly)]
)
def test_what_need_not_train_is_no_loop_that_fails(program: Start, way: str) -> None:
    """Nothing is said of evaluation, or where no optimizer is."""
    target = program("swallowing", way)
    target.wait_for_agent()
    target.wait_for_output("round 120")
    assert sure(examine(target)) == []


@pytest.mark.anypython
@pytest.mark.parametrize("mode", ["1", "0"])
def test_an_import_that_takes_long_is_no_hang(tmp_path: Path, mode: str) -> None:
    """Of a process whose agent comes with torch that is said, and nothing is called healthy."""
    package = tmp_path / "site-packages" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(_SLOW_TORCH)
    (tmp_path / "train.py").write_text("import torch\n")
    argv = [sys.executable, "-u", str(tmp_path / "train.py")]
    packages = str(package.parent)
    target = Target(argv, tmp_path / "home", tmp_path, PROBING=mode, PYTHONPATH=packages)
    try:
        target.wait_for_output("begun")
        report = examine(target)
        told = target.run(str(target.pid), "hang").stdout
    finally:
        target.reap()
    assert report["findings"] == []
    assert report["healthy"] == ["process"]
    (why,) = (one["why"] for one in report["not_looked_at"] if "hang" in one["rules"])
    # Between its lines it may be seen in a function of the interpreter, which is then named.
    sentence = r"is importing torch(, in C code \(\w+\))?, at train\.py:1 in <module>"
    assert bool(re.search(sentence + ", and its agent", why)) == (mode == "1")
    assert re.search(sentence, told)
    assert "interpreter lock" not in told
