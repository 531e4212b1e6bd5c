"""Records of loops that go on though their steps fail, and of what only looks like it."""

from __future__ import annotations

from typing import Any

from .made import Facts, facts, steps
from .records import Case, failing, trace


def _tasks(*rows: dict[str, Any], count: int = 3, **columns: Any) -> Facts:
    """Tasks of an executor that have failed, and whose futures have gone.

    Args:
        rows: More of them, each as the others but for what it says.
    """
    base = {"function": "save", "file": "/job/train.py", "line": "train.py:7", "lost": True,
            "error": "OSError: no space left", "duration": 0.1, **columns}  # fmt: skip
    made = [{**base, "step": 10 * n, "error": f"{base['error']} ({n})"} for n in range(1, count)]
    return facts({"steps": steps(60), "task_errors": [*made, *({**base, **row} for row in rows)]})


def _without_module() -> Facts:
    """A training of bare tensors, which have no module to be called."""
    taken = [
        {"loader": 0, "step": s, "batch": s % 8, "duration": 0.01, "failed": False,
         "start_ns": 1_000_000_000 * (10 + s) + 1, "exhausted": s % 8 == 7}
        for s in range(200)
    ]  # fmt: skip
    return facts({"steps": steps(200), "batches": taken})


def _left_early(*calls: str, trained: str = "head", frozen: str = "") -> Facts:
    """Steps in which models are called, and some are left by an exception.

    Args:
        calls: The models, in the order of their calls; a `!` behind one that is left.
        trained: Those that the optimizer steps.
        frozen: One of them that requires no gradients.
    """
    made = steps(200)
    rows = [
        {"step": row["step"], "stage": "forward", "start_ns": row["start_ns"] + n,
         "model": call.rstrip("!"), "failed": "!" in call, "recomputed": False, "training": True}
        for row in made for n, call in enumerate(calls)
    ]  # fmt: skip
    own = [{"step": row["step"], "optimizer": "opt", "model": trained} for row in made]
    weights = [{"model": model, "optimizers": 1, "trainable": model != frozen}
               for model in trained.split(", ") if frozen]  # fmt: skip
    record = {"steps": made, "torch_trace": trace(*rows), "optimizer_steps": own}
    return facts(record, {"parameters": weights})


def _trials() -> Facts:
    """A search each of whose trials has a model of its own, whose first call fails."""
    made = steps(40)
    rows = [
        {"step": 40, "stage": "forward", "start_ns": made[-1]["start_ns"] + n + 1,
         "model": f"model {n}", "failed": True, "recomputed": False, "training": True}
        for n in range(1, 65)
    ]  # fmt: skip
    return facts({"steps": made, "torch_trace": trace(*rows)})


def estimated(*, has_gradient: bool | None, is_alive: bool = True) -> Facts:
    """A training whose steps have no backward pass.

    Args:
        has_gradient: Whether the script gives its parameters gradients by itself; None where that
            could not be read.
        is_alive: Whether it can be asked.
    """
    made = steps(200)
    rows = [
        {"step": row["step"], "stage": "forward", "start_ns": row["start_ns"] + 1, "failed": False,
         "recomputed": False}
        for row in made
    ]  # fmt: skip
    taken = [
        {"loader": 0, "step": s, "batch": s % 8, "duration": 0.01, "failed": False,
         "start_ns": 1_000_000_000 * (10 + s), "exhausted": s % 8 == 7}
        for s in range(200)
    ]  # fmt: skip
    weight = {"model": "model", "optimizers": 1, "has_gradient": has_gradient}
    record = {"steps": made, "torch_trace": trace(*rows), "batches": taken}
    return facts(record, {"parameters": [weight]}, is_alive=is_alive)


_KEPT: dict[str, Any] = {"lost": None, "duration": None}
FAILING = (
    Case(
        "lost-errors",
        _tasks,
        "likely",
        10,
        "2 calls of save (train.py:7) in an executor ended by"
        " an exception, and nobody asked: OSError: no space left (2)",
    ),
    Case("lost-errors", lambda: _tasks(file="/x/site-packages/tracker/api.py"), "possible"),
    Case(
        "lost-errors", lambda: _tasks(function=None, file=None), "possible", 10, "another process"
    ),
    Case("lost-errors", lambda: _tasks(**_KEPT), "possible", 10, "has asked so far"),
    Case("lost-errors", lambda: _tasks(count=2), None),
    Case("lost-errors", lambda: _tasks(lost=False), None),
    Case("lost-errors", lambda: _tasks({"lost": False, "step": 9}), None),  # map(): the first told
    Case("lost-errors", lambda: _tasks(error="StopIteration: "), None),  # it fetches ahead
    Case("lost-errors", lambda: facts({"steps": steps(60)}), None),
    Case("failing-calls", lambda: failing(forward=True), "likely", 40, "64 of the last 64"),
    Case("failing-calls", lambda: failing(forward=lambda n: n % 4 == 0), None),
    Case("failing-calls", lambda: failing(forward=True, training=False), None),
    Case("failing-calls", lambda: failing(backward=True), "likely", 40, "Backward passes of model"),
    Case(
        "failing-calls",
        lambda: _left_early("extractor!", "head", "head"),
        "possible",
        None,
        "Calls of extractor end by an"
        " exception, 21 of the last 21, and the script goes on: steps are made all the same",
    ),
    Case("failing-calls", lambda: _left_early("extractor!", "extractor", "head"), "possible", None),
    Case(
        "failing-calls",
        lambda: _left_early("extractor!", "head", trained="extractor, head", frozen="extractor"),
        "possible",
    ),
    Case(
        "failing-calls",
        lambda: _left_early("main", "aux!", trained="main, aux"),
        "likely",
        None,
        "Calls of aux end by an exception, 32 of the last 64, and the script goes on: steps are",
    ),
    Case("failing-calls", _trials, "likely", 40, "64 of the last 64"),
    Case("failing-calls", lambda: _left_early("extractor", "head", "head"), None),
    Case("no-backward", failing, "possible", 40, "the last step of an optimizer is 39"),
    Case("no-backward", lambda: failing(count=0), "likely", 0, "no step has been made"),
    Case("no-backward", lambda: failing(count=0, epochs=3), "likely", 0, "no step has been made"),
    Case("no-backward", lambda: failing(epochs=3), "likely", 40),
    Case("no-backward", lambda: estimated(has_gradient=True), "possible", 0, "though 200 steps"),
    Case("no-backward", lambda: estimated(has_gradient=False), "likely", 0, "though 200 steps"),
    Case("no-backward", lambda: failing(calls=9), None),
    Case("no-backward", lambda: failing(is_evaluation=True), None),
    Case("no-backward", lambda: failing(training=False), None),
    Case("no-backward", lambda: failing(count=0, taken=0), None),  # a policy that acts
    Case("no-backward", lambda: failing(micro_batches=64), None),
    Case("unused-batches", lambda: failing(calls=0, epochs=2), "likely", 40, "2 epochs"),
    Case("unused-batches", lambda: failing(calls=0, epochs=1), None),  # skipped, as it resumes
    Case("unused-batches", _without_module, None),
)
