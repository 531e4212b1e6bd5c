"""Runs a script with the agent watching: what `probing run` becomes.

    python -m probing._run train.py --its --args
    python -m probing._run -m package.module --its --args

Rules of this file: the script must find the world as if it had been started without us: its own
``sys.argv``, ``sys.path[0]`` and ``__main__``.
"""

from __future__ import annotations

import os
import runpy
import sys

from . import _boot


def run(argv: list[str]) -> None:
    """Run a script, or ``-m module``, as ``__main__``.

    Args:
        argv: The script and its arguments.
    """
    os.environ.setdefault("PROBING", "1")
    _boot.start()
    if argv[:1] == ["-m"]:
        sys.argv[:] = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = argv
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    run(sys.argv[1:])
