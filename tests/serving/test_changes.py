"""What is asked of the agent itself is on record, and the process's audit hooks may forbid it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import probing
from probing.attach.attach import attach
from probing.errors import ProbingError
from probing.messages.about.act import Lr
from probing.messages.about.fit import FitRequest
from tests.faults import Reached
from tests.harness.targets import Target, program_path

Ask = Callable[[probing.Process], object]

HOOK = """
import sys
forbidden, heard = set(), []
def hook(event, facts):
    if event.startswith('probing.'):
        heard.append((event, *facts))
        if event in forbidden:
            raise PermissionError('not here')
sys.addaudithook(hook)
"""
ASKED: dict[str, tuple[Ask, str]] = {
    "set": (lambda asked: asked.set("eval_timeout_s", "7"), "eval_timeout_s=7"),
    "arm": (lambda asked: asked.arm("gradients", 1), "what='gradients', steps=1"),
    "profile": (lambda asked: asked.profile(1), "steps=1"),
    "record": (lambda asked: asked.record_allocations("on", steps=1), "state='on', steps=1"),
    "snapshot": (lambda asked: asked.snapshot(steps=1), "steps=1"),
    "fit": (lambda asked: asked.fit(FitRequest(batch=2)), "batch=2"),
    "cancel": (lambda asked: asked.cancel(7), "eval 7"),
    "detach": (lambda asked: asked.detach(keep_record=True), "keep_record=True"),
    "act": (lambda asked: asked.act(Lr(value=0.5)), "0.5"),
}
"""What is more than to read, how it is asked for, and what the record and the hook are told."""


def rows(asked: probing.Process, table: str = "probing.changes") -> list[dict[str, object]]:
    """The record, the oldest row first."""
    return asked.query(f"SELECT * FROM {table} ORDER BY seq").to_pylist()


@pytest.mark.torch
def test_who_has_asked_for_what_is_on_record(asked: probing.Process) -> None:
    """Each request has a row: by whom, with which arguments, how it ended, and why not."""
    before = len(rows(asked))  # other tests share the process
    asked.set("eval_timeout_s", "8")
    asked.arm("gradients", 1)
    asked.profile(1)
    with pytest.raises(ProbingError):
        asked.set("home", "/elsewhere")
    with pytest.raises(ProbingError):
        asked.cancel(99)
    found = rows(asked)[before:]
    assert [(row["name"], row["arguments"], row["state"]) for row in found] == [
        ("set", "eval_timeout_s=8", "done"),
        ("arm", "what='gradients', steps=1", "done"),
        ("profile", "steps=1, timeout_s=30.0", "done"),
        ("set", "home=/elsewhere", "refused"),
        ("cancel", "eval 99", "refused"),
    ]
    assert [row["change_id"] for row in found] == [before + number for number in range(1, 6)]
    assert {(row["uid"], row["pid"], row["address"]) for row in found} == {
        (os.getuid(), os.getpid(), None)
    }
    assert "set PROBING_HOME before the start" in str(found[3]["error"])
    assert [row["failed"] for row in found] == [False] * 3 + [True] * 2
    profiled = float(str(found[2]["duration"]))
    assert profiled > float(str(found[0]["duration"])) > 0


@pytest.mark.torch
@pytest.mark.fault("E3")
def test_an_audit_hook_forbids_what_it_will(asked: probing.Process, fault: Reached) -> None:
    """What a hook vetoes is not done, is told as its veto, and stands in the record."""
    assert asked.eval(HOOK).error is None
    events = [f"probing.{name}" for name in ASKED]
    assert asked.eval(f"forbidden.update({events!r})").error is None
    before, rate = len(rows(asked)), asked.eval("sgd.param_groups[0]['lr']").value
    for name, (ask, _) in ASKED.items():
        with pytest.raises(ProbingError) as caught:
            ask(asked)
        told = f"{caught.value.code}, exit code {caught.value.exit_code}: {caught.value.message}"
        fault.equals(
            name,
            "vetoed, exit code 4: an audit hook of the process forbids it (PermissionError: not"
            " here).",
            told,
        )
    found = rows(asked)[before:]
    for row, (name, (_, arguments)) in zip(found, ASKED.items(), strict=False):
        assert (row["name"], row["state"]) == (name, "vetoed")
        assert str(row["arguments"]).startswith(arguments)
    (act,) = rows(asked, "python.actions")
    assert (act["name"], act["state"]) == ("lr", "refused")
    assert "forbids it (PermissionError" in str(act["notes"])
    heard = str(asked.eval("forbidden.clear() or [h[0] for h in heard]").value)
    assert all(event in heard for event in events)
    assert asked.eval("sgd.param_groups[0]['lr']").value == rate
    assert asked.set("eval_timeout_s", "9") is not None


@pytest.mark.anypython
def test_coming_and_leaving_are_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has attached, and who has had the agent leave, is read in the folder that is kept."""
    target = Target([sys.executable, str(program_path("idle"))], tmp_path / "home", tmp_path)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    try:
        target.wait_for_output("ready")
        attach(target.pid)
        folder = target.folder.path
        probing.connect(target.pid).detach(keep_record=True)
        found = rows(probing.connect(str(folder)))
    finally:
        target.reap()
    assert [(row["name"], row["arguments"], row["state"]) for row in found] == [
        ("attach", None, "done"),
        ("detach", "keep_record=True", "done"),
    ]
    assert {(row["uid"], row["pid"]) for row in found} == {(os.getuid(), os.getpid())}
