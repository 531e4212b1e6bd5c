"""Weighted stacks for the tools that draw them: a page of our own, a picture, speedscope.

Rules of this file: pure functions of their arguments. The page is drawn as a report in one file
is; the picture is SVG, without a script.
"""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

from ....units import duration
from ..text import cut_middle, escape_controls

if TYPE_CHECKING:
    from ....profiling import Samples

_INSTALLED = re.compile(
    r"(?<=\()/[^()]*/(?:site|dist)-packages/|(?<=\()/[^()]*/lib/python3[^/()]*/"
)
"""The folders of installed packages and of the standard library, in the place of a frame."""
_WIDE, _ROW, _TOP, _LETTER = 1200.0, 18, 40, 7.0
_LEAST = 0.3
"""Boxes of fewer pixels are left out of the picture."""


def render_flamegraph(samples: Samples, *, title: str) -> str:
    """A page that shows the stacks as a flame graph.

    Raises:
        PageMissing: The page was not built when probing was installed.
    """
    from ....page.report_file import report_file

    return report_file(title, {"stacks": {**_tree(samples), "scale": _seconds_per_weight(samples)}})


def render_svg(samples: Samples, *, title: str) -> str:
    """A picture of the stacks, the root on top; a box says under the mouse what it is."""
    tree = _tree(samples)
    scale, total = _seconds_per_weight(samples), sum(weight for _, weight in samples.stacks)
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree["parents"]):
        children.setdefault(parent, []).append(node)
    boxes: list[str] = []
    waiting = [(node, 0, x) for node, x in _side_by_side(children.get(-1, []), tree, total, 0.0)]
    deepest = 0
    while waiting:
        node, depth, left = waiting.pop()
        width = _WIDE * tree["weights"][node] / total
        if width < _LEAST:
            continue
        deepest = max(deepest, depth)
        boxes.append(_box(tree, node, depth, left, width, scale=scale, total=total))
        below = _side_by_side(children.get(node, []), tree, total, left)
        waiting += [(child, depth + 1, x) for child, x in below]
    height = _TOP + (deepest + 1) * _ROW + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE:.0f} {height}"'
        ' font-family="system-ui, sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="6" y="24" font-size="16">{html.escape(escape_controls(title))}</text>'
        f"{''.join(boxes)}</svg>\n"
    )


def _side_by_side(
    nodes: list[int], tree: dict[str, Any], total: int, left: float
) -> list[tuple[int, float]]:
    """Where each of some nodes begins, in the order of their names."""
    found = []
    for node in sorted(nodes, key=lambda node: _in_order(tree["names"][tree["frames"][node]])):
        found.append((node, left))
        left += _WIDE * tree["weights"][node] / total
    return found


def _in_order(name: str) -> list[tuple[int, str]]:
    """What names are sorted by: `blocks.2` comes before `blocks.10`."""
    parts = re.split(r"0*([0-9]+)", name)
    return [(len(part) if at % 2 else 0, part) for at, part in enumerate(parts)]


def _box(
    tree: dict[str, Any], node: int, depth: int, left: float, width: float, *, scale: float,
    total: int,
) -> str:  # fmt: skip
    """One box of the picture, with its name as far as it has room."""
    name, weight = tree["names"][tree["frames"][node]], tree["weights"][node]
    said = f"{name}: {duration(weight * scale)}, {100 * weight / total:.1f} %"
    room = int((width - 6) / _LETTER)
    text = cut_middle(name, room) if room > 1 else ""
    top = _TOP + depth * _ROW
    hue = 15 + sum(map(ord, name)) % 40
    label = f'<text x="{left + 3:.1f}" y="{top + 13}">{html.escape(text)}</text>' if text else ""
    return (
        f"<g><title>{html.escape(said)}</title>"
        f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{_ROW - 1}"'
        f' fill="hsl({hue},85%,70%)" stroke="#fff" stroke-width="0.5"/>{label}</g>'
    )


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
            name = _INSTALLED.sub("", escape_controls(frame))
            key = (parent, names.setdefault(name, len(names)))
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
