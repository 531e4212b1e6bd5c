"""Why the agent could not start, and what to do about it, in words.

Rules of this file: an exception in, text out; it runs in the training, which goes on.
"""

from __future__ import annotations

from ..errors import BadSetting, ProbingError


def reason_of(error: BaseException | None) -> str:
    """What went wrong, as the end of a sentence."""
    if isinstance(error, OSError) and error.strerror:
        place = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{place}"
    if isinstance(error, ProbingError):
        return error.message.rstrip(".")
    return f"{type(error).__name__}: {error}".rstrip(".")


def advice_on(error: BaseException | None) -> str:
    """What to do, as the end of a sentence."""
    if isinstance(error, BadSetting):
        return f"correct or unset {error.name}, and start the script again"
    if isinstance(error, OSError) and error.filename:
        return "have PROBING_HOME name a folder on a disk with room that you may write to"
    if isinstance(error, ProbingError) and error.help:
        return error.help.rstrip(".")
    return "`probing attach PID` tries it again"
