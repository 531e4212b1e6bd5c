"""What is in a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..table import columns, render_table
from ..text import plural

if TYPE_CHECKING:
    from ....diagnosis.checkpoints import CheckpointContent, Entry


def render_checkpoint(content: CheckpointContent, *, width: int | None) -> str:
    """A line on all of it, then its tensors, then its other values."""
    tensors = [entry for entry in content.entries if entry.kind == "tensor"]
    values = [entry for entry in content.entries if entry.kind != "tensor"]
    step = "no step" if content.step is None else f"step {content.step}"
    head = f"{step}, {plural(len(tensors), 'tensor')}, {content.bytes:,} bytes"
    lines = [head, f"keys: {', '.join(content.keys) or 'none'}"]
    bad = [entry for entry in tensors if entry.not_finite]
    lines.append(_verdict(bad, tensors))
    if content.unknown:
        lines.append(f"weights_only=True may refuse it, for: {', '.join(content.unknown)}")
    lines += ["", _tensor_table(tensors, width)]
    if values:
        lines += ["", _value_table(values, width)]
    return "\n".join(lines)


def _verdict(bad: list[Entry], tensors: list[Entry]) -> str:
    """Whether its numbers are sound."""
    unread = sum(entry.not_finite is None for entry in tensors)
    more = f"; not read: {plural(unread, 'tensor')} of other dtypes" if unread else ""
    if not bad:
        return f"all values that were read are finite{more}"
    return f"NOT FINITE: values in {plural(len(bad), 'tensor')}, first {bad[0].key}{more}"


def _tensor_table(tensors: list[Entry], width: int | None) -> str:
    headings = columns("tensor", "=dtype", "=shape", ">bytes", ">not finite")
    rows = [
        [
            entry.key,
            entry.dtype,
            "x".join(map(str, entry.shape or ())) or "scalar",
            None if entry.bytes is None else f"{entry.bytes:,}",
            None if entry.not_finite is None else f"{entry.not_finite:,}",
        ]
        for entry in tensors
    ]
    return render_table(headings, rows, width=width, color=False)


def _value_table(values: list[Entry], width: int | None) -> str:
    headings = columns("value", "type", "is")
    rows = [[entry.key, entry.kind, entry.value] for entry in values]
    return render_table(headings, rows, width=width, color=False)
