"""How long the operator's side waits, where nobody says how long."""

from __future__ import annotations

DEFAULT_TIMEOUT_S = 30.0
"""The time limit of a question."""
READY_S = 2.0
"""How long a live process may take to say that it can run Python code at all."""
GRACE_S = 5.0
"""What an answer may take beyond the time limit that the other side keeps itself."""
WAIT_S = 10.0
"""How long a model's next call is waited for."""
