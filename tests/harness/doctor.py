"""The doctor as tests ask it."""

from __future__ import annotations

import json
from typing import Any

from tests.harness.targets import Target

LONG_S = "80"
"""As long as a busy machine may take for looks that take 4 s on one that is not."""


def examine(target: Target, *words: str) -> dict[str, Any]:
    """What the doctor says, as JSON."""
    whole = ("--timeout", LONG_S) if "--timeout" not in words else ()
    done = target.run(*whole, str(target.pid), "doctor", "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def sure(report: dict[str, Any]) -> list[str]:
    """The rules of what is certain or likely, in their order."""
    return [f["rule"] for f in report["findings"] if f["certainty"] != "possible"]
