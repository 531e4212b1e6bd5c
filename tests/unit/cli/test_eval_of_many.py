"""What is told of code that was sent to several ranks."""

from __future__ import annotations

from typing import Any

import pytest

from probing.cli.ask import ranks
from probing.cli.commands import eval_
from probing.cluster.ranks import gather_evaluations
from probing.messages.common import EvalResult

pytestmark = pytest.mark.anypython

RESULT = EvalResult(
    output="",
    value="2",
    error=None,
    error_type=None,
    omitted_bytes=0,
    duration_s=0.0,
    waited_s=0.0,
    where="safe point",
    step=3,
)


@pytest.mark.parametrize("results", [{}, {0: RESULT}])
def test_only_code_that_was_run_is_said_to_have_been(
    results: dict[Any, EvalResult], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Where all refuse it, none has run it by itself."""
    monkeypatch.setattr(
        gather_evaluations, "gather_results", lambda *_, **__: (results, (), "no answer")
    )
    for name in ("asking_of", "tell_outcomes"):
        monkeypatch.setattr(ranks, name, lambda *_: None)
    monkeypatch.setattr(ranks, "exit_code", lambda *_: 4)

    class Asked:
        timeout_s = 1.0
        attaches = False

    eval_._show_many(Asked(), None, may_meet=True, as_json=True)  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert ("each has run it by itself" in told) is bool(results)
