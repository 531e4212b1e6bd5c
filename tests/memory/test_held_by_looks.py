"""A training that stands still because it is being looked at is never called a hanging one."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import probing
from probing.cluster.job.members import find_members
from probing.diagnosis.hang.case import LEAST_THRESHOLD_S
from probing.diagnosis.hang.diagnosis import diagnose
from probing.diagnosis.hang.evidence import Verdict
from tests.harness.targets import DEADLINE_S, Target, start_program, wait_until

pytestmark = pytest.mark.torch

_HANG_S = int(LEAST_THRESHOLD_S)
_SLOWLY = """
import threading
import probing.agent.sources.storage.memory_look as look
look.gate, look.begun, look.plain = threading.Event(), threading.Event(), look.storages_now
def slowly(*given):
    look.begun.set()
    look.gate.wait(120)
    return look.plain(*given)
look.storages_now = slowly
"""


@pytest.fixture
def keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """A training, which this process finds."""
    target = start_program("keeping", "plain", home=tmp_path / "home", cwd=tmp_path)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_output("ready")
    yield target
    target.reap()


def test_a_long_look_is_no_hang(keeping: Target) -> None:
    """GIVEN a look that takes longer than a hang; it is named by `hang`, and `doctor` is calm."""
    process = probing.connect(keeping.pid)
    keeping.wait_for_step(keeping.step() + 3)
    process.eval(_SLOWLY)
    asking = threading.Thread(target=keeping.run, args=(str(keeping.pid), "memory"))
    asking.start()

    members = find_members([str(keeping.pid)]).members

    def seen_in_look() -> Verdict | None:
        (verdict,) = diagnose(members, timeout_s=10.0)
        assert (verdict.outcome, verdict.may_hang) == ("fine", False), verdict
        found = re.search(r"probing looks at what is in memory.*, for (\d+) s", verdict.headline)
        return verdict if found and int(found[1]) > _HANG_S else None

    try:
        verdict = wait_until(seen_in_look, "a look that takes longer than a hang")
        assert verdict.headline.endswith("so far: no hang.")
    finally:
        process.eval("look.gate.set()")
        asking.join(DEADLINE_S)
    assert not asking.is_alive()
