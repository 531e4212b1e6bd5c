"""The pictures of the docs can be made, and those that are there are small and all named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.browser import CHROMIUM
from tests.harness.targets import ROOT
from tests.harness.web import needs_page

PICTURES = ROOT / "docs" / "how-to" / "pictures"
MOST_BYTES = 100_000


def test_the_pictures_are_small_and_named() -> None:
    """Each is in the page of the docs, and is quickly fetched."""
    text = (ROOT / "docs" / "how-to" / "web.md").read_text("utf-8")
    found = sorted(PICTURES.glob("web-*.webp"))
    assert found
    for one in found:
        assert f"(pictures/{one.name})" in text
        assert one.stat().st_size < MOST_BYTES


@pytest.mark.torch
@pytest.mark.browser
@pytest.mark.nightly
@needs_page
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_they_can_be_made_anew(tmp_path: Path) -> None:
    """The script makes the same ones, of a training that runs."""
    script = str(ROOT / "docs" / "pictures.py")
    subprocess.run([sys.executable, script, str(tmp_path)], cwd=ROOT, check=True, timeout=240)
    made = {one.name for one in tmp_path.iterdir()}
    assert made == {one.name for one in PICTURES.iterdir()}
    assert all(10_000 < one.stat().st_size < MOST_BYTES for one in tmp_path.iterdir())
