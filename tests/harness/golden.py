"""Golden files: what is drawn stands in a file, which `UPDATE_GOLDEN=1` writes anew."""

from __future__ import annotations

import os
from pathlib import Path


def assert_golden(path: Path, drawn: str) -> None:
    """What was drawn is exactly the text of its file, but for the last line's end."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(f"{drawn}\n", "utf-8")
    assert f"{drawn}\n" == path.read_text("utf-8")
