"""What a file that is saved costs, and how much of it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from probing.agent.recording.safe_points import SafePoints
from probing.agent.sources.accelerator import Accelerator
from probing.ring.names import decode_names
from probing.ring.reader import read_ring
from probing.ring.writer import Names, RingWriter
from probing.tables import CHECKPOINTS, TORCH_TRACE

pytestmark = pytest.mark.torch


def test_only_a_file_with_a_model_has_the_weights_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file per sample reads no weights, its cost is told, and its path is kept so many times."""
    import torch

    from probing.agent.sources import checkpoints
    from probing.agent.sources.numbers.nonfinite import bad_weights
    from probing.agent.sources.shared.recording import Recording

    look_at_weights = bad_weights.look_at_weights

    asked = []

    def look(*args: Any) -> Any:
        asked.append(args)
        return look_at_weights(*args)

    monkeypatch.setattr(bad_weights, "look_at_weights", look)
    monkeypatch.setattr(checkpoints, "_MOST_OTHERS", 2)
    ring, trace = (RingWriter(tmp_path / t.name, t, 64) for t in (CHECKPOINTS, TORCH_TRACE))
    names, model, unused = Names(tmp_path / "names"), torch.nn.Linear(1, 1), cast("Any", None)
    recording = Recording(trace=trace, rows=unused, names=names, safe_points=SafePoints())
    recording.objects.roots.add(model)
    source = checkpoints.source(recording, ring, Accelerator())
    source.start()
    try:
        for sample in range(4):
            torch.save([sample], tmp_path / f"{sample}.pt")
        assert not asked
        assert recording.costs._spent["checkpoints"] > 0
        torch.save({"weight": 1}, tmp_path / "model.pt")
        assert len(asked) == 1
        source._left[0] = -1  # two threads have saved at once
        assert source._number_of(str(tmp_path / "more.pt"), 0) == names.intern(f"{tmp_path}/")
    finally:
        source.stop()
    assert source.guard.problem is None
    texts = decode_names((tmp_path / "names").read_bytes())
    kept = [texts[number] for number in read_ring(tmp_path / "checkpoints").rows["path"]]
    files = [f"{tmp_path}/{name}" for name in ("0.pt", "1.pt", "", "", "model.pt")]
    assert kept == files
    for each in (ring, trace, names):
        each.close()
