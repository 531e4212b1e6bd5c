"""What commands say of a process with an agent that has not imported torch: at once, and why."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.harness.targets import Target

pytestmark = pytest.mark.anypython

WHY = "the process has not imported torch"
REFUSED = ("gradients", "leak", "arm nan", "fit --max", "profile", "labels")


def test_nothing_is_waited_for(program: Callable[..., Target]) -> None:
    """Commands that need a training refuse with the reason; what there is of memory is shown."""
    target = program("idle", PROBING="all")
    target.wait_for_output("ready")
    target.wait_for_agent()
    for words in REFUSED:
        # What is waited for would end by this limit, with another sentence.
        done = target.run(str(target.pid), *words.split(), "--timeout", "100")
        assert WHY in done.stderr, (words, done.stderr)
        assert "or nothing can be recorded" not in done.stderr
        assert done.returncode != 0
        assert done.stdout == ""
    done = target.run(str(target.pid), "memory", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["segments"] == []
    assert WHY in json.loads(done.stdout)["notes"]
