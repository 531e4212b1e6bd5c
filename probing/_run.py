"""Runs a script with the agent watching: what `probing run` becomes.

    python -m probing._run train.py --its --args
    python -m probing._run -m package.module --its --args

Rules of this file: the script must find the world as if it had been started without us: its own
``sys.argv``, ``sys.path[0]`` and ``__main__``, and only itself in its traceback.
"""

from __future__ import annotations

import os
import runpy
import sys

from . import _boot

TYPE_CHECKING = False  # `typing` is not worth importing before the script
if TYPE_CHECKING:
    from types import TracebackType


def run(argv: list[str]) -> None:
    """Run a script, or ``-m module``, as ``__main__``.

    Args:
        argv: The script and its arguments.
    """
    os.environ.setdefault("PROBING", "1")
    _boot.start()
    try:
        if argv[:1] == ["-m"]:
            sys.argv[:] = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv[:] = argv
            sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
            runpy.run_path(argv[0], run_name="__main__")
    except Exception as error:  # noqa: BLE001 - the script's own, told as Python tells it
        # What Python does next, but for the frames that would be added on the way there.
        error.__traceback__ = _of_the_script(error.__traceback__)
        sys.last_type, sys.last_value = type(error), error
        sys.last_traceback = error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        raise SystemExit(1) from None


def _of_the_script(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback from the script's first frame on."""
    inner = traceback and traceback.tb_next  # the first is that of `run`
    while inner is not None and inner.tb_frame.f_globals.get("__name__") == "runpy":
        inner = inner.tb_next
    return inner


if __name__ == "__main__":
    run(sys.argv[1:])
