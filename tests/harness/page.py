"""What a person does in the page of `probing web`, in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

from tests.harness.browser import Browser


def view(page: Browser, name: str, **part: str) -> None:
    """Go to a view of the first process."""
    of = page.evaluate("document.querySelector('header select option:nth-child(2)').value")
    words = "".join(f"&{key}={quote(value, safe='')}" for key, value in part.items())
    page.evaluate(f"location.hash = '#/{name}?of={quote(of, safe='')}{words}'")


def click(page: Browser, word: str) -> None:
    """Press the button with that word."""
    buttons = "[...document.querySelectorAll('button')]"
    find = f"{buttons}.find(one => one.textContent === {json.dumps(word)})"
    page.wait_for(f"(one => one && !one.disabled && (one.click(), true))({find})")


def drag(page: Browser) -> tuple[Callable[[float], float], float]:
    """Zoom into a part of the first plot; where its parts are across, and its middle is."""
    left, width, middle = page.evaluate(
        "(({x, y, width, height}) => [x, width, y + height / 2])"
        "(document.querySelector('.u-over').getBoundingClientRect())"
    )
    for kind, part in (("mousePressed", 0.2), ("mouseMoved", 0.6), ("mouseReleased", 0.6)):
        page.mouse(kind, left + width * part, middle)
    return lambda part: left + width * part, middle
