"""A C part that is not of these sources is not used, and one that is, is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from probing.ring import native

pytestmark = pytest.mark.anypython

_WITH_STALE = """
import sys, types
stale = types.ModuleType("probing.ring._native")
stale.Words = stale.Moment = stale.Thread = None
sys.modules["probing.ring._native"] = stale
import probing.ring
probing.ring._native = stale
from probing.ring import native
print(native.IN_C, native.Words is native.PlainWords)
"""


def test_the_c_part_that_was_built_is_used() -> None:
    """Both files name the same version, so that nothing is recorded by Python for want of care."""
    built = pytest.importorskip("probing.ring._native", reason="there is no compiler here")
    assert native.IN_C is built


def test_an_older_c_part_is_left_alone(tmp_path: Path) -> None:
    """Where sources were updated and not built anew, Python records."""
    done = subprocess.run(
        [sys.executable, "-c", _WITH_STALE],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == "None True\n"
