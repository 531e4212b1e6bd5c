"""A profile that is asked for where no step ends, or that cannot be written."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from probing.agent.on_demand.profiling import save_trace
from probing.agent.sources.calls.profiler import StepsProfile
from probing.errors import InternalError
from tests.harness.targets import DEADLINE_S

torch = pytest.importorskip("torch", reason="it is its profiler")
pytestmark = pytest.mark.torch


def test_a_profile_begins_only_once_a_step_has_ended() -> None:
    """Where none ever does, each call of the model comes by, and no profiler is ever on."""
    step = 0
    profile = StepsProfile(1, lambda: step, 0)
    profile.prepare()
    for _ in range(3):
        assert not profile.step_ended()
    assert profile.state == "waiting"
    assert not torch._C._autograd._profiler_enabled()
    profile.cancel()
    assert profile.step_ended()
    assert profile.state == "cancelled"


def test_a_trace_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """Where the disk is full torch raises nothing, and leaves what it has written."""

    class Full(StepsProfile):
        def save(self, path: Path) -> None:
            path.with_name(f"{path.name}.tmp").write_bytes(b"{")

    with pytest.raises(InternalError, match="could not write its file"):
        save_trace(Full(1, lambda: 0, 0), tmp_path / "profile.json.gz")
    assert list(tmp_path.iterdir()) == []


def test_a_profile_is_ended_by_its_own_thread_alone() -> None:
    """Another one that trains comes by, and leaves it on."""
    steps = iter(range(9))
    profile = StepsProfile(1, lambda: next(steps), 0)
    profile.prepare()
    profile.step_ended()
    assert profile.state == "running"
    profile.cancel()
    other = threading.Thread(target=profile.step_ended)
    other.start()
    other.join()
    assert profile.state == "running"
    assert profile.step_ended()
    assert profile.state == "cancelled"
    assert not torch._C._autograd._profiler_enabled()


@pytest.mark.slow
def test_what_a_program_imports_with_its_first_optimizer_is_left_to_it() -> None:
    """Two threads that import torch._dynamo, each from its end, would meet half-made modules."""
    code = (
        "import sys, torch;"
        "from probing.agent.sources.calls.profiler import StepsProfile;"
        "StepsProfile(1, lambda: 0, 0).prepare();"
        "print([name for name in ('torch._dynamo', 'torch._inductor') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout == "[]\n", done.stderr
