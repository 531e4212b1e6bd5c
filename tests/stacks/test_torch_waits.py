"""What trainings that are stuck in PyTorch wait for, in words."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.messages.common import Backtrace
from tests.harness.targets import Target, program_path, wait_until

pytestmark = pytest.mark.torch

WAITS = {
    "dataloader": (
        "dataloader",
        r"waiting for a batch from (a DataLoader worker|DataLoader worker \d+ \(pid \d+\))",
    ),
    "all_reduce": ("all_reduce", "waiting for the other ranks in the collective all_reduce"),
    "join_group": ("join_group", r"waiting for the other ranks to join \(init_process_group\)"),
    "backward": ("backward", "sleeping"),
}


@pytest.mark.parametrize("mode", WAITS)
def test_the_wait_is_told_in_pytorchs_terms(
    mode: str, program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent and both together tell a batch, a collective and a rendezvous from a mere lock."""
    target = program("stuck_torch", mode)
    target.wait_for_output("ready")
    target.wait_for_agent()
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    func, says = WAITS[mode]

    def look(kinds: set[str]) -> Backtrace | None:
        trace = job.backtrace(native="native" in kinds)
        main = trace.threads[0]
        is_told = re.fullmatch(says, main.waiting or "") is not None
        is_there = is_told and func in [frame.func for frame in main.frames]
        return trace if is_there and kinds <= {frame.kind for frame in main.frames} else None

    seen = wait_until(lambda: look({"python"}), f"{mode}: {says}")
    # What stands in for functions of torch says nothing about the job.
    assert [frame.file for frame in seen.threads[0].frames if "/agent/sources/" in frame.file] == []
    wait_until(lambda: look({"python", "native"}), f"{mode}: {says}, with C functions")
    assert "returned" not in target.output


def test_the_main_thread_is_the_jobs_however_near_the_top_we_stand(tmp_path: Path) -> None:
    """A loop over a DataLoader at the top of a script has our frame as its second one."""
    script = str(program_path("shallow"))
    target = Target([sys.executable, script], tmp_path / "home", tmp_path)
    try:
        target.wait_for_output("ready")
        target.wait_for_agent()

        def by_agent() -> Any:  # which a busy machine may keep from answering in time
            done = target.run(str(target.pid), "backtrace", "--format", "json")
            trace = json.loads(done.stdout)
            main = next(thread for thread in trace["threads"] if thread["is_main"])
            is_there = trace["source"] == "agent" and main["waiting"] != "running"
            return main if is_there else None

        main = wait_until(by_agent, "stacks by the agent, of a thread that waits")
    finally:
        target.reap()
    assert main["frames"][-1]["func"] == "<module>"
    assert "DataLoader worker" in main["waiting"]
