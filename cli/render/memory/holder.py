"""Who refers to a tensor, in words.

Rules of this file: pure functions of rows of python.leaks and python.referrers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TOLD_BY_PLACE = {"global", "attribute", "class"}
"""The file of such a holder, the class's, may be far from the place that has it."""


def holder_text(row: Mapping[str, Any]) -> str:
    """Who refers to a tensor."""
    if row["holder"] in {"unknown", "cycle"} or not row["path"]:
        known = {
            "native": "nothing that Python's garbage collector knows refers to it: native code"
            " does, or a NumPy array or memoryview of it",
            "unknown": "what refers to it was not found",
            "cycle": "held by a reference cycle that only the garbage collector frees",
            "traceback": "held by a local variable in the traceback of an exception",
        }
        return known.get(row["holder"], "")
    container = f" ({row['container']})" if row["container"] else ""
    line = f", {short_file(row['file'])}:{row['lineno']}" if row["lineno"] else ""
    if not line and row["file"] and row["holder"] not in _TOLD_BY_PLACE:
        line = f", {short_file(row['file'])}"
    places = {
        "global": f"in {row['place']}",
        "attribute": f"of the module {row['place']}",
        "class": f"in {row['place']}",
        "closure": f"in the closure of {row['place']}",
        "local": f"in {row['place']}()",
        "traceback": f"in {row['place']}, by way of a traceback",
        "graph": f"in {row['place']}, by way of its autograd graph",
    }
    return f"kept by `{row['path']}`{container} {places[row['holder']]}{line}"


def short_file(file: str) -> str:
    """A file's name without its folders."""
    return file.rpartition("/")[2]
