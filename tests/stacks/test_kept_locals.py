"""A script that keeps what `locals()` gave it has it still when somebody has looked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from tests.harness.targets import Target

pytestmark = pytest.mark.anypython


def test_looking_at_locals_leaves_what_the_script_has_kept(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to Python 3.12 that is the very dictionary that whoever looks is given, too."""
    target = program("kept_locals", PROBING="all")
    monkeypatch.setenv("PROBING_HOME", str(target.env["PROBING_HOME"]))
    target.wait_for_agent()
    target.wait_for_output("ready")
    job = probing.connect(target.pid)
    trace = job.backtrace(locals=True)
    shown = {
        local.name: local.value for frame in trace.threads[0].frames for local in frame.locals or ()
    }
    assert shown["rate"] == "0.5"
    assert job.eval("rate").value == "0.5"
    assert job.eval("sorted({*kept} - {'kept'})").value == "['rate', 'shape']"
    assert target.output == "ready\n"
