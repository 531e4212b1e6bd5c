"""What the ways into a process are called.

Rules of this file: words only, so that help and completion need not load the ways themselves.
"""

from __future__ import annotations

AUTO = "auto"
"""The best of the ways that is open."""
REMOTE_EXEC = "remote-exec"
THREAD = "thread"
PENDING = "pending"
NAMES = (REMOTE_EXEC, THREAD, PENDING)
"""In the order in which `AUTO` tries them."""
