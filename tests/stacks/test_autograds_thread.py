"""The threads that autograd starts for devices, which Python has not started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import probing
from probing.linux.process import SystemCall, ThreadFacts
from probing.messages.common import Frame, ThreadStack
from probing.stacks.text import complete
from probing.stacks.wait_rules import IDLE_DEVICE
from tests.harness.targets import Target, wait_until

MAIN, DEVICE, NAME = 10, 31, "pt_autograd_0"
TRAIN = Frame(func="<module>", file="/job/train.py", lineno=1)
BACKWARD = Frame(
    func="_engine_run_backward", file="/v/site-packages/torch/autograd/graph.py", lineno=9
)
HOOK = Frame(func="hook", file="/job/train.py", lineno=2)
FUTEX = "waiting for a lock or a condition (futex)"


@pytest.mark.torch
def test_recording_makes_no_thread_known_that_was_not(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `threading` tells of a program's threads is the same; ours is called by the kernel."""
    target = program("autograds_thread", PROBING="1")
    target.wait_for_output("inside")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)

    def look() -> ThreadStack | None:
        return next((one for one in job.backtrace().threads if one.name == NAME), None)

    found = wait_until(look, "autograd's thread, by its name")
    assert Path(f"/proc/{target.pid}/task/{found.thread_id}/comm").read_text().strip() == NAME
    assert "stay" in [frame.func for frame in found.frames]
    (target.cwd / "on").touch()
    target.wait_for_output("over")
    (known,) = [line for line in target.output.splitlines() if line.startswith("over")]
    assert "MainThread" in known
    assert "Dummy" not in known


@pytest.mark.torch
def test_one_that_the_program_made_known_is_idle_between_passes(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called as the kernel calls it, and has nothing to do."""
    target = program("autograds_thread", "known", PROBING="1")
    target.wait_for_output("inside")
    (target.cwd / "on").touch()
    target.wait_for_output("over")
    assert "Dummy-" in target.output
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)

    def is_idle() -> bool:
        found = [thread for thread in job.backtrace().threads if thread.name == NAME]
        return [(thread.waiting, thread.frames) for thread in found] == [(IDLE_DEVICE, ())]

    wait_until(is_idle, "the end of the pass")


@pytest.mark.anypython
@pytest.mark.parametrize(
    ("main", "own", "state", "waiting"),
    [
        ((TRAIN,), (), "S", IDLE_DEVICE),
        ((BACKWARD, TRAIN), (), "S", FUTEX),
        ((), (), "S", FUTEX),
        ((TRAIN,), (HOOK,), "S", FUTEX),
        ((TRAIN,), (), "R", "running"),
    ],
    ids=["idle", "in a pass", "no stack known", "in a hook", "at work"],
)
def test_it_is_idle_only_where_nobody_is_in_a_backward_pass(
    main: tuple[Frame, ...], own: tuple[Frame, ...], state: str, waiting: str
) -> None:
    """As far as the stacks of all threads tell."""
    call = SystemCall(name="futex") if state == "S" else None
    facts = {
        MAIN: ThreadFacts(MAIN, "S", 1.0, "python3"),
        DEVICE: ThreadFacts(DEVICE, state, 9.0, NAME, call=call),
        50: ThreadFacts(50, "S", 0.0, "python3"),
    }
    stacks = [
        ThreadStack(thread_id=MAIN, name="MainThread", is_main=True, frames=main),
        ThreadStack(thread_id=DEVICE, name="Dummy-2", is_main=False, frames=own),
        ThreadStack(thread_id=50, name="Dummy-3", is_main=False, frames=()),
    ]
    _, device, other = complete(stacks, facts)
    assert (device.name, device.waiting) == (NAME, waiting)
    assert other.name == "Dummy-3", "the program's own name says nothing"
