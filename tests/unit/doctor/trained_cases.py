"""Records made by hand of parameters that no optimizer trains, or several, or for nothing."""

from __future__ import annotations

from .made import Facts, facts, steps
from .records import Case, parameters, trace

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


def uncalled(*modules: str, never: tuple[str, ...] = ("bert.pooler.dense.weight",)) -> Facts:
    """A model of which some modules are called, and some parameters have never had a gradient."""
    base = {"model": "model", "root": "Net", "numel": 9, "trainable": True, "optimizers": 1,
            "optimizer": "opt"}  # fmt: skip
    learned = ("bert.layer.0.up.weight", "bert.layer.1.up.weight", "head.weight")
    rows = [
        {**base, "parameter": name, "has_gradient": is_learned, "has_state": is_learned,
         "version": 60 if is_learned else 1}
        for is_learned, names in ((True, learned), (False, never)) for name in names
    ]  # fmt: skip
    calls = trace(*({"step": 5, "module": module} for module in ("", *modules)))
    return facts({"steps": steps(60), "torch_trace": calls}, {"parameters": rows})


_INSIDE = ("bert", "bert.layer.0", "bert.layer.0.up", "head")
UNCALLED = (
    Case("never-a-gradient", lambda: uncalled(*_INSIDE), "possible", None,
         "bert.pooler is never called"),
    Case("never-a-gradient", lambda: uncalled(*_INSIDE, never=("extra.weight",)), "possible", None,
         "extra is never called"),
    Case("never-a-gradient", lambda: uncalled(*_INSIDE, "bert.pooler"), "likely"),  # compiled
    Case("never-a-gradient", uncalled, "likely"),  # all of it is
    Case("never-a-gradient", lambda: uncalled("bert", "head"), "likely"),  # one part of it is
    Case("never-a-gradient", lambda: uncalled(  # a layer that is cut off, and one that is not used
        *_INSIDE, "first", never=("bert.pooler.weight", "first.weight")), "likely", None,
        "learn: first.weight"),
)  # fmt: skip
