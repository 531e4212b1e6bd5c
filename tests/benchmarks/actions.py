"""How long each action makes a training stand still, and how long an eval takes to come back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import probing
from probing.client.base import Process
from probing.messages.about.act import Asked, Checkpoint, Cleanup, Clip, Lr, Undo
from tests.harness.targets import start_training

from .measures import Measure, rounds_for, scaled
from .processes import temporary_home


def measure(effort: float) -> Iterator[Measure]:
    """The pauses that the answers tell, in the bundled training at its usual size."""
    with temporary_home() as home:
        size = ["--layers", "6", "--dim", "256", "--context", "128", "--checkpoint-every", "0"]
        target = start_training(*size, "--workers", "0", home=home, cwd=home)
        try:
            job = probing.connect(str(target.folder.path))
            whole = str(home / "whole.pt")
            pairs: tuple[tuple[str, Asked, bool], ...] = (
                ("act lr --scale", Lr(scale=0.5), True),
                ("act clip", Clip(max_norm=1.0), True),
                ("act cleanup", Cleanup(), False),
                ("act checkpoint", Checkpoint(path=whole, force=True), False),
                ("act checkpoint --async", Checkpoint(path=whole, force=True, copy_first=True),
                 False),
            )  # fmt: skip
            for what, asked, is_undone in pairs:
                pauses = []
                for _ in range(rounds_for(10, effort)):
                    act = job.act(asked, timeout_s=120)
                    pauses.append(act.pause_s or 0.0)
                    if is_undone:
                        job.act(Undo(number=act.number), timeout_s=120)
                note = "; ".join(
                    change.after or "" for change in act.changes if "written" in change.what
                ).rpartition(", ")[2]
                yield Measure(what=what, unit="ms", values=scaled(pauses, 1e3), note=note)
            yield from _evals(job, rounds_for(20, effort))
        finally:
            target.reap()


def _evals(job: Process, rounds: int) -> Iterator[Measure]:
    """From the question to the answer: at the next safe point, and at once."""
    job.eval("0")
    for what, now in (("eval, at a safe point", False), ("eval --now", True)):
        took, waited = [], []
        for _ in range(rounds):
            began = time.perf_counter()
            answer = job.eval("optimizer.param_groups[0]['lr']", now=now)
            took.append(time.perf_counter() - began)
            waited.append(answer.waited_s or 0.0)
        note = f"of which it waited {1e3 * statistics.median(waited):.1f} ms"
        yield Measure(what=what, unit="ms", values=scaled(took, 1e3), note=note)
