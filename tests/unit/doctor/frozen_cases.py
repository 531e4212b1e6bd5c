"""Records made by hand of parameters that are frozen, for good or for a while."""

from __future__ import annotations

import itertools
from typing import Any

from .made import facts, steps
from .records import MIB, Case, Make, parameters


def frozen(
    pace: int, *, change: int = 0, thawed: bool = False, others: int = 400, step: int = 1
) -> Make:
    """A parameter with 9 MiB of state that is frozen, and one that is trained.

    Args:
        pace: Steps that end before each query; of each, two are between the looks.
        change: How often the frozen one is changed between two looks.
        thawed: Whether it is trained at the second look.
        others: How often the other one was changed in 400 steps,
        step: and is in one of those that are looked at.
    """
    look = itertools.count()
    base = {"model": "model", "root": "Net", "numel": 100, "optimizers": 1, "optimizer": "Adam",
            "has_state": True, "state_bytes": 9 * MIB}  # fmt: skip

    def rows() -> list[dict[str, Any]]:
        number = next(look)
        return [
            {**base, "parameter": "items.weight", "trainable": thawed and number > 1,
             "version": 50 + number * change},
            {**base, "parameter": "out.weight", "trainable": True,
             "version": others + number * step * 4 * pace},
        ]  # fmt: skip

    return lambda: facts({"steps": steps(400)}, {"parameters": rows}, live_s=2.0, pace=pace)


FROZEN = (
    Case("frozen-state", frozen(20), "likely", None, "nothing changed them in"),
    Case("frozen-state", frozen(20, change=1), None),  # trained in turn, some steps each
    Case("frozen-state", frozen(20, thawed=True), None),
    Case("frozen-state", frozen(20, others=100), "possible", None,  # in turn, many steps each
         "what is trained now was in"),
    Case("frozen-state", frozen(20, step=0), "possible", None, "has changed nothing"),
    Case("frozen-state", frozen(1), "possible"),  # two looks, and too few steps between them
    Case("frozen-state", parameters({"trainable": False, "has_state": False, "state_bytes": 0}),
         None),
)  # fmt: skip
