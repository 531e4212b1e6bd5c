"""Records made by hand of parameters that no optimizer trains, or several, or for nothing."""

from __future__ import annotations

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
