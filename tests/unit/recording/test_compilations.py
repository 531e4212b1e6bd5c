"""Rows of python.compilations, from what torch notes of its compilations."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import cast

import pytest

from probing.agent.live.question import LiveQuestion
from probing.agent.sources.compilations import rows

NOTED = [  # by torch 2.13, of a function and the gradients of the graph behind its break
    SimpleNamespace(
        co_name="forward", co_filename="train.py", co_firstlineno=5, compile_id="1/0",
        start_time_us=1_795_700_974_612_955, entire_frame_compile_time_s=8.18, graph_op_count=1,
        is_forward=True, recompile_reason=None, fail_reason=None,
    ),
    SimpleNamespace(
        co_name="torch_dynamo_resume_in_forward_at_7", co_filename="train.py", co_firstlineno=7,
        compile_id="2/0", start_time_us=1_795_700_982_799_891, entire_frame_compile_time_s=0.64,
        graph_op_count=2, is_forward=True, recompile_reason=None, fail_reason=None,
    ),
    SimpleNamespace(
        co_name=None, co_filename=None, co_firstlineno=None, compile_id="2/0",
        start_time_us=1_795_700_983_480_678, entire_frame_compile_time_s=None, graph_op_count=None,
        is_forward=False, recompile_reason=None, fail_reason=None,
    ),
]  # fmt: skip


def test_gradients_have_the_name_of_their_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch notes next to nothing of them but the number of the graph."""
    utils = SimpleNamespace(get_compilation_metrics=lambda: NOTED)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)
    found = rows(cast("LiveQuestion", None))
    asked = ("function", "lineno", "frame", "attempt", "stage", "duration_s")
    resumed = "torch_dynamo_resume_in_forward_at_7"
    assert [tuple(column[name] for name in asked) for column in found.dicts()] == [
        ("forward", 5, 1, 0, "forward", 8.18),
        (resumed, 7, 2, 0, "forward", 0.64),
        (resumed, 7, 2, 0, "backward", None),
    ]
