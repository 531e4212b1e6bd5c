"""A report in one file: a document with its script, its style and what it is about.

Rules of this file: text in, text out. What it is about stands in the document as JSON in which no
``<`` occurs, so that none of it can end the block or begin markup; the policy lets the one script
and the one style in, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from typing import Any

from . import page_file

_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main id="page"></main>
<noscript>This report is drawn by its own script, which the browser does not run.</noscript>
<script type="application/json" id="record">{record}</script>
<script>{script}</script>
</body>
</html>
"""


def report_file(title: str, record: dict[str, Any]) -> str:
    """The document.

    Args:
        record: What `report.js` draws; values that JSON has.

    Raises:
        PageMissing: The page was not built when probing was installed.
    """
    script, style = (page_file(f"report.{kind}").decode() for kind in ("js", "css"))
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return _DOCUMENT.format(
        policy=policy,
        title=html.escape(title),
        style=style,
        record=json.dumps(_plain(record), allow_nan=False).replace("<", "\\u003c"),
        script=script,
    )


def _hash(text: str) -> str:
    """By which a policy names a script or a style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _plain(value: Any) -> Any:
    """The same with numbers that are not finite as texts: JSON has none of them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
