"""Has the process's own audit hooks hear what is asked of it, before it is done.

Rules of this file: whatever a hook raises is its veto, SystemExit too, and nobody else's error:
raised on the agent's event loop it would end that.
"""

from __future__ import annotations

import sys

from ...errors import Vetoed


def ask_hooks(event: str, *facts: object) -> None:
    """Raise the audit event ``probing.EVENT``.

    Raises:
        Vetoed: A hook refuses it.
    """
    try:
        sys.audit(f"probing.{event}", *facts)
    except BaseException as error:  # noqa: BLE001 - see the rules
        raise Vetoed(_sentence(error)) from None


def _sentence(error: BaseException) -> str:
    """What a hook has raised, as far as it lets itself be told."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except BaseException:  # noqa: BLE001 - its own __str__ may raise anything
        return name
