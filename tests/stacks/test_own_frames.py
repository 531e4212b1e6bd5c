"""A program that fails prints the same traceback with the agent and without.

But for one frame of torch's at each module: the agent calls what `_wrapped_call_impl` would.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.targets import clean_env, program_path

pytestmark = [pytest.mark.torch, pytest.mark.slow]


_WRAPPER = re.compile(r"  File .* in _wrapped_call_impl\n    .*\n(?: +\^+\n)?")


def run(home: Path, how: str, probing: str) -> tuple[int, str, str]:
    """What whoever starts the program gets to see."""
    done = subprocess.run(
        [sys.executable, str(program_path("failing_model")), how],
        env=clean_env(home, PROBING=probing),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, _WRAPPER.sub("", done.stderr)


@pytest.mark.parametrize("how", ["backward", "chained", "thread"])
def test_a_failing_program_prints_what_it_would_without_us(tmp_path: Path, how: str) -> None:
    """No frame of ours is in what it prints, wherever in a model it fails."""
    with_agent = run(tmp_path, how, "1")
    assert "Traceback" in with_agent[2]
    assert list(tmp_path.glob("*/*exception.json")), "the agent was not there"
    assert with_agent == run(tmp_path, how, "0")
