"""All that the agent writes to the host's stderr: what it was told to do and does not.

It cannot start, listen or be in its place, or a variable is no setting.

Rules of this file: at the start of an agent that the training was started with, and never in a
process that it was put into. Who reads nothing of stderr holds up nothing: a pipe that is full gets
no line. Never raises.
"""

from __future__ import annotations

import functools
import select
import sys

from ..safety.guard import try_each


def warn(*sentences: str) -> None:
    """Write each as a line of its own, if that does not take any waiting."""
    try_each(functools.partial(_write, sentence) for sentence in sentences)


def _write(sentence: str) -> None:
    """See `warn`."""
    stream = sys.stderr
    if stream is None:  # it was closed before Python started
        return
    poll = select.poll()
    poll.register(stream.fileno(), select.POLLOUT)
    if any(event & select.POLLOUT for _, event in poll.poll(0)):
        stream.write(f"probing: {sentence.rstrip('.')}\n")
        stream.flush()
