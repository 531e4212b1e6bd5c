"""The page as it is sent: its document, its script and its style, and what it may do.

Rules of this file: nothing of any process is in here. Each document has a nonce of its own, and a
policy under which a browser runs the one script, asks this server alone, and makes no markup of
text: a process that calls itself ``<script>`` is shown so.
"""

from __future__ import annotations

import secrets

from aiohttp import web

from ..page import page_file

_SHARED = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>probing</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" nonce="{nonce}" href="/page.css">
</head>
<body>
<main id="page" data-nonce="{nonce}"></main>
<noscript>This page is made by its script, which the browser does not run.</noscript>
<script nonce="{nonce}" src="/page.js"></script>
</body>
</html>
"""
_POLICY = (
    "default-src 'none'",
    "script-src 'nonce-{nonce}'",
    "style-src 'nonce-{nonce}'",
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
_KINDS = {"page.js": "text/javascript", "page.css": "text/css"}


def document() -> web.Response:
    """The page itself."""
    nonce = secrets.token_urlsafe(16)
    policy = "; ".join(_POLICY).format(nonce=nonce)
    return web.Response(
        text=_DOCUMENT.format(nonce=nonce),
        content_type="text/html",
        headers={**_SHARED, "Content-Security-Policy": policy},
    )


def static(name: str) -> web.Response:
    """Its script or its style.

    Raises:
        PageMissing: It was not built.
    """
    kind = _KINDS[name]
    return web.Response(
        body=page_file(name), content_type=kind, charset="utf-8", headers=dict(_SHARED)
    )
