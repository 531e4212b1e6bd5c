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
    from .cli.main import main as run

    run()


if __name__ == "__main__":
    main()
