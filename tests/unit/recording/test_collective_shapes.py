"""The shapes of collectives, of which there may be others at each call."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from probing.agent.recording.safe_points import SafePoints
from probing.ring.names import decode_names
from probing.ring.writer import Names

pytestmark = pytest.mark.torch


def test_new_shapes_end_where_there_were_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of an all_to_all that are others each time leave room for other names."""
    import torch

    from probing.agent.sources.collectives import rows
    from probing.agent.sources.shared.recording import Recording

    monkeypatch.setattr(rows, "_MOST_SHAPES", 3)
    monkeypatch.setattr(rows, "_MOST_FACTS", 1)
    names, unused = Names(tmp_path / "names"), cast("Any", None)
    recording = Recording(trace=unused, rows=unused, names=names, safe_points=SafePoints())
    known = rows.CollectiveRows(recording, unused, unused, unused)
    numbers = [known.facts_of([torch.ones(size)])[0] for size in (1, 2, 3, 4, 1, 5, 3)]
    names.close()
    texts = decode_names((tmp_path / "names").read_bytes())
    shapes = [texts[number] for number in numbers]
    assert shapes == ["[1]", "[2]", "[3]", None, "[1]", None, "[3]"]
