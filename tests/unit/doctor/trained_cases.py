"""Records made by hand of parameters that no optimizer trains, or several, or for nothing."""

from __future__ import annotations

from .made import Facts, facts, steps
from .records import Case, parameters

_NONE = {"optimizers": 0, "optimizer": None, "has_state": None}

UNTRAINED = (
    Case("no-optimizer", parameters({**_NONE, "version": 2}), "likely", None, "first.weight"),
    Case("no-optimizer", parameters({**_NONE, "version": 2, "parameter": "experts[0].up.weight"}),
         "likely", None, "experts[0].up.weight"),
    Case("no-optimizer", parameters({**_NONE, "version": None}), "likely"),
    Case("no-optimizer", parameters({**_NONE, "version": 4012}), None),  # updated by hand
    Case("no-optimizer", parameters({**_NONE, "version": 4012}, {**_NONE, "version": 1,
         "parameter": "new.weight"}), "likely", None, "change: new.weight"),
)  # fmt: skip


def shared(turns: str) -> Facts:
    """Steps of optimizers that have a parameter in common.

    Args:
        turns: What each step does, one after the other: `|` is a backward pass, and all else the
            name of an optimizer that steps.
    """
    passes, stepped = [], []
    for step in range(60):
        for place, what in enumerate(turns.split()):
            when = {"step": step, "start_ns": 1_000_000_000 * (10 + step) + 1_000 * place}
            if what == "|":
                passes.append({**when, "duration_ns": 500, "backward_s": 1e-7})
            else:
                stepped.append({**when, "optimizer": what, "optimizers": 1})
    row = {"model": "net", "parameter": "w", "numel": 9, "trainable": True, "optimizers": 2}
    record = {"steps": steps(60), "micro_batches": passes, "optimizer_steps": stepped}
    return facts(record, {"parameters": [{**row, "optimizer": "gen, info"}]})


IN_TURN = (
    Case("two-optimizers", lambda: shared("| gen info"), "likely", None, "gen, info"),
    Case("two-optimizers", lambda: shared("| | | gen info"), "likely"),  # accumulated
    Case("two-optimizers", lambda: shared("| gen | other info"), "possible"),  # InfoGAN
    Case("two-optimizers", lambda: shared("| gen | other | info aux"), "possible"),  # SAC-AE
)
