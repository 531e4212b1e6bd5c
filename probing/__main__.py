"""``python -m probing`` and the command ``probing``: where both begin.

Rules of this file: imports next to nothing before Ctrl-C is seen to. Until the command itself does
that, it ends the process without a word, as it ends any other.
"""

from __future__ import annotations

import signal
from typing import NoReturn

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> NoReturn:
    """Run the command line of this process and leave with its exit code."""
    try:
        from .cli.main import main as run
    except ImportError as error:
        _refuse(error)
    run()


def _refuse(error: ImportError) -> NoReturn:
    """Say what is missing where only the agent is installed, and how it gets there."""
    import sys

    from .errors.querying import missing_library

    missing = missing_library(error)
    if missing is None:
        raise error
    sys.stderr.write(
        f"error: {missing.message}\n{missing.help}\n`PROBING=1 python SCRIPT` records without it.\n"
    )
    raise SystemExit(missing.exit_code)


if __name__ == "__main__":
    main()
