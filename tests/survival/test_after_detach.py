"""What a record tells that was kept as the agent was taken out of its process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

import probing
from probing.messages.card import TAKEN_OUT
from probing.postmortem.last_known import last_known
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.tables import STAGES
from tests.harness.cards import card_of
from tests.harness.name_lists import encode_names
from tests.harness.ring_writer import RingWriter, trace_writer
from tests.harness.targets import Target, wait_until

SINCE = " as its agent was taken out of it, and nothing is on record since (the record ends at "


def left(tmp_path: Path, writer: RingWriter) -> ProcessFolder:
    """The run folder of a process, as its agent has left it."""
    folder = RunDirectory(tmp_path / "home").create_folder(2**22 + 1, 5)
    writer.save(folder.ring("torch_trace"))
    folder.names.write_bytes(encode_names(("blocks.0", "Block", "GPT")))
    card = card_of(folder.pid, folder.start_time)
    folder.write_card(dataclasses.replace(card, problems=(TAKEN_OUT,)))
    return folder


@pytest.mark.anypython
@pytest.mark.parametrize(
    ("stage", "func", "where"),
    [
        ("step", "step 41", "outside of all module calls,"),
        ("forward", "blocks.0 (forward)", "inside these module calls,"),
    ],
)
def test_the_last_step_is_known(tmp_path: Path, stage: str, func: str, where: str) -> None:
    """That in which the agent left, also where nothing but the step was under way."""
    writer = trace_writer()
    writer.open(thread_id=9, stage=STAGES.index(stage), module=1, step=41, depth=0, start_ns=100)
    trace = last_known(left(tmp_path, writer))
    assert trace is not None
    assert [frame.func for frame in trace.threads[0].frames] == [func]
    assert trace.note is not None
    assert f"it was in step 41, {where}{SINCE}" in trace.note


@pytest.mark.anypython
def test_a_step_that_had_ended_is_said_to_have(tmp_path: Path) -> None:
    """Nothing was under way then."""
    writer = trace_writer()
    writer.write(
        thread_id=9, stage=STAGES.index("step"), step=41, depth=0, start_ns=1, duration_ns=9
    )
    trace = last_known(left(tmp_path, writer))
    assert trace is not None
    assert trace.note is not None
    assert f"step 41 had ended{SINCE}" in trace.note


@pytest.mark.torch
def test_a_training_that_is_killed_later_has_a_last_step(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record was kept, and `backtrace` shows it."""
    target = program("evaluated", "1000000")
    target.wait_for_step(3)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    folder = target.folder
    kept = probing.connect(target.pid).detach(keep_record=True).kept
    assert kept == str(folder.path)
    wait_until(lambda: not folder.socket.exists(), "the end of the agent")
    target.kill()
    shown = target.run(str(folder.path), "backtrace")
    assert shown.returncode == 0, shown.stderr
    assert "as its agent was taken out of it" in shown.stdout + shown.stderr
