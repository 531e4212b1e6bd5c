"""The marks that a profile of steps carries where each step begins.

Rules of this file: the one thing that the agent, which makes them, and the reader of the trace must
agree on. They also tie the clocks together: the name of each says when it was made, and when the
one before it was done.
"""

from __future__ import annotations

import re

MARKS_PER_STEP = 5
"""Several, because one may be made at a moment at which its thread has to wait."""

MARK = "probing step {step} at {time_ns} after {ended_ns}"
"""The name, with the step's number, the time by the clock of python.torch_trace, and by that clock
the end of the mark before."""

MARK_PATTERN = re.compile(r"probing step (\d+) at (\d+) after (\d+)")
