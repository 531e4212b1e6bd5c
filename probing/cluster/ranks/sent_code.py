"""The code that ranks are to run.

Rules of this file: a record, cheap to import.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """Code, and when it may run.

    Attributes:
        now: Whether it does not wait for a safe point.
        unsafe: Whether it may run in a thread that holds the interpreter lock for ever.
        thread: Whose locals it sees; None for the training thread's.
        frame: Those of which of its frames; None for all.
        assign: Whether what it assigns goes into the script.
    """

    text: str
    now: bool = False
    unsafe: bool = False
    thread: str | None = None
    frame: int | None = None
    assign: bool = False
