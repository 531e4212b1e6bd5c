"""A page of the docs as a notebook: its text as cells of Markdown, its blocks of Python as cells.

Rules of this file: a pure function of the page, so that `generate.py --check` holds both together.
"""

from __future__ import annotations

import hashlib
import json
import re

_BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook_of(page: str) -> str:
    """The notebook, without outputs, as its file has it."""
    parts = _BLOCK.split(page)  # text, code, text, code, ..., text
    cells = [_cell(at, part.strip("\n")) for at, part in enumerate(parts) if part.strip()]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def _cell(at: int, text: str) -> dict[str, object]:
    """One cell; its id stays while its text does."""
    name = hashlib.sha256(f"{at} {text}".encode()).hexdigest()[:8]
    shared: dict[str, object] = {
        "id": name,
        "metadata": {},
        "source": text.splitlines(keepends=True),
    }
    if at % 2 == 0:
        return {"cell_type": "markdown", **shared}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **shared}
