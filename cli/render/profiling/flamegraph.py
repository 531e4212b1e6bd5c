"""Weighted stacks for the tools that draw them: a page of our own, speedscope, folded lines.

Rules of this file: pure functions of their arguments. The page loads nothing: data, style and
script are in it.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text import escape_controls

if TYPE_CHECKING:
    from ....profiling import Samples

_PAGE = Path(__file__).with_name("flamegraph.html")


def render_flamegraph(samples: Samples, *, title: str) -> str:
    """A page that shows the stacks as a flame graph."""
    data = {**_tree(samples), "scale": _seconds_per_weight(samples)}
    # In a script, `<` could end it; in JSON it may be written so.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    page = _PAGE.read_text("utf-8")
    return page.replace("TITLE", html.escape(title)).replace("null /* DATA */", text)


def render_speedscope(samples: Samples, *, title: str) -> str:
    """A file that https://www.speedscope.app and tools like it read."""
    numbers: dict[str, int] = {}
    stacks = [
        [numbers.setdefault(frame, len(numbers)) for frame in frames]
        for frames, _ in samples.stacks
    ]
    scale = _seconds_per_weight(samples)
    weights = [weight * scale for _, weight in samples.stacks]
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": title,
        "exporter": "probing",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in numbers]},
        "profiles": [
            {
                "type": "sampled",
                "name": title,
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": stacks,
                "weights": weights,
            }
        ],
    }
    return json.dumps(document, separators=(",", ":"))


def _seconds_per_weight(samples: Samples) -> float:
    return 1 / samples.hz if samples.hz else 1e-9


def _tree(samples: Samples) -> dict[str, Any]:
    """The stacks merged from the root: per node its parent, its name and its weight."""
    names: dict[str, int] = {}
    nodes: dict[tuple[int, int], int] = {}
    weights: list[int] = []
    for frames, weight in samples.stacks:
        parent = -1
        for frame in frames:
            key = (parent, names.setdefault(escape_controls(frame), len(names)))
            if key not in nodes:
                nodes[key] = len(weights)
                weights.append(0)
            parent = nodes[key]
            weights[parent] += weight
    return {
        "names": list(names),
        "parents": [parent for parent, _ in nodes],
        "frames": [name for _, name in nodes],
        "weights": weights,
    }
