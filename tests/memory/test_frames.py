"""Who looks at the frames of all threads keeps none of them, and with them no tensor."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from probing.agent.crash.exception_record import other_threads
from probing.agent.recording import training_thread
from probing.agent.sources.data.dataloader_rows import _meet_waiting
from probing.agent.sources.leaks.references import named_places
from probing.agent.sources.stacks.look import take_backtrace
from probing.agent.sources.storage.held_by_frames import held_by_frames
from tests.harness.targets import ROOT

pytestmark = pytest.mark.anypython

LOOKS: dict[str, Callable[[], Any]] = {
    "backtrace": take_backtrace,
    "exception": lambda: other_threads({"threads": [{"thread_id": -1}]}),
    "first thread": training_thread.training_thread,
    "names": named_places._running_frames,
    "tensors": lambda: list(held_by_frames(Exception)),
    "waiting": lambda: _meet_waiting(SimpleNamespace(waiting_code=None)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("look", LOOKS)
def test_frames_are_let_go_of(look: str) -> None:
    """Nothing is left for the garbage collector, which may not come for many steps."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        LOOKS[look]()
        gc.collect()
        kept = [thing.f_code for thing in gc.garbage if type(thing) is FrameType]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    # Other tests may have left threads of theirs, which leave what they like.
    assert [code for code in kept if code.co_filename.startswith(str(ROOT))] == []
