"""Makes the pictures of the page for the docs, of the bundled training, so that they cannot rot.

    python docs/pictures.py [FOLDER]     writes docs/how-to/pictures/web-*.webp

Rules of this file: it shows what a person sees who does the same; nothing in a picture is made up.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.harness.browser import Browser, browser  # noqa: E402 - found by the line above
from tests.harness.targets import Target  # noqa: E402
from tests.harness.web import web  # noqa: E402

FOLDER = ROOT / "docs" / "how-to" / "pictures"
VIEWS = {
    "steps": ("light", "document.querySelectorAll('.uplot').length > 4"),
    "step": ("light", "document.querySelector('.told')?.textContent.includes('shown of')"),
    "memory": ("light", "document.querySelectorAll('.split').length === 2"),
    "model": ("dark", "document.querySelector('.tree')?.textContent.includes('→')"),
    "sql": ("dark", "document.querySelector('.grid tbody tr')"),
}
"""The views that are shown, in which theme, and by what each is there."""
_PRESSED = {"memory": "Look at the next step", "model": "Shapes and FLOPs", "sql": "Run"}
_WIDTH, _HEIGHT, _QUALITY = 1280, 800, 75
_STEPS = 240


def main(folder: Path) -> None:
    """Make all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        training = _training(here)
        try:
            training.wait_for_step(_STEPS)
            with web(here / "web", training.home) as served, browser(here) as page:
                page.show(theme="light", width=_WIDTH, height=_HEIGHT)
                page.open(served.link)
                page.wait_for("document.querySelector('tr[data-endpoint]')")
                for view in VIEWS:
                    _take(page, view, folder / f"web-{view}.webp")
        finally:
            training.reap()


def _training(here: Path) -> Target:
    """The training of the examples, smaller."""
    script = str(ROOT / "examples" / "train_gpt.py")
    small = ["--layers", "4", "--dim", "64", "--context", "32", "--checkpoint-every", "100"]
    small += ["--workers", "1", "--pause", "0.02", "--threads", "1"]
    argv = [sys.executable, "-m", "probing._run", script, *small]
    return Target(argv, here / "home", here, PROBING="1")


def _take(page: Browser, view: str, path: Path) -> None:
    """Go to a view, have it look where it only does on a button, and take its picture."""
    theme, is_there = VIEWS[view]
    page.show(theme=theme, width=_WIDTH, height=_HEIGHT)
    of = page.evaluate("document.querySelector('header select option:nth-child(2)').value")
    page.evaluate(f"location.hash = '#/{view}?of={quote(of, safe='')}'")
    if view in _PRESSED:
        buttons = "[...document.querySelectorAll('button')]"
        find = f"{buttons}.find(one => one.textContent === {json.dumps(_PRESSED[view])})"
        page.wait_for(f"{find} && !{find}.disabled")
        page.evaluate(f"{find}.click()")
    page.wait_for(is_there)
    page.evaluate(
        "new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame))"
        ".then(() => 0)"
    )
    answer = page.call("Page.captureScreenshot", format="webp", quality=_QUALITY)
    path.write_bytes(base64.b64decode(answer["data"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
