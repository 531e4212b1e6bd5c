"""What schemathesis leaves out of what the description allows; it imports this file itself.

A time limit that nobody can keep ends as 504, as described, which it takes for the server's fault.
"""

from __future__ import annotations

from typing import Any

import schemathesis

_LEAST_S = 1.0


@schemathesis.hook
def filter_case(_context: Any, case: Any) -> bool:
    """Whether a case is to be sent."""
    limit = case.body.get("timeout_s") if isinstance(case.body, dict) else None
    return not (isinstance(limit, int | float) and 0 < limit < _LEAST_S)
