"""What ``%load_ext probing`` puts into a notebook: the magic, and its completion.

Rules of this file: imported by IPython alone, in the notebook's kernel.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from .cells import Cells


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext probing``; again, it replaces what it has put there."""
    unload_ipython_extension(shell)
    from IPython.core.magic import no_var_expand

    cells = Cells(shell)

    @no_var_expand  # code of the training, whose braces and dollars are its own
    @functools.wraps(Cells.run)
    def run(line: str, cell: str | None = None) -> Any:
        return cells.run(line, cell)

    shell.register_magic_function(run, "line_cell", "probing")
    with contextlib.suppress(ImportError):  # IPython before 8.6 has no such completion
        from .completion import matcher_for

        shell.Completer.custom_matchers.append(matcher_for(cells))


def unload_ipython_extension(shell: Any) -> None:
    """Called by ``%unload_ext probing``."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("probing", None)
    matchers = getattr(shell.Completer, "custom_matchers", [])
    matchers[:] = [one for one in matchers if getattr(one, "__module__", "") != _COMPLETION]


_COMPLETION = f"{__package__}.completion"
