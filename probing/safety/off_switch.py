"""What switches probing off in a process, or forbids to put it there.

Rules of this file: tells from an environment and from Python's command line, the same for a
process that asks about itself and for an operator who asks about another. Imports nothing that
costs: the start of an interpreter waits for it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

VARIABLE = "PROBING_DISABLE"
_NO = ("", "0", "off", "false", "no")
"""As `settings.values.NO`, which the start of an interpreter cannot wait for."""
_REMOTE_DEBUG_VARIABLE = "PYTHON_DISABLE_REMOTE_DEBUG"
_REMOTE_DEBUG_OPTIONS = ("disable_remote_debug", "disable-remote-debug")


def is_off(environment: Mapping[str, str]) -> bool:
    """Whether all of probing is switched off; a value that is no clear no does it."""
    return environment.get(VARIABLE, "").strip().lower() not in _NO


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether processes with such an environment are to have an agent from their start on."""
    mode = environment.get("PROBING", "0").strip().lower()
    return mode not in _NO and not is_off(environment)


def without_agent(environment: Mapping[str, str]) -> dict[str, str]:
    """The same environment, for a process that is to have no agent."""
    return {name: value for name, value in environment.items() if name != "PROBING"}


def why_closed(environment: Mapping[str, str], options: Container[str]) -> str | None:
    """Why no agent may be put into a process, in words; None when one may.

    The interpreter itself has the switch for remote debugging from Python 3.14 on, and only for its
    own way in. Who sets it wants no way at all, so it is heard for all of them, on every Python.

    Args:
        options: What was given with ``-X``.
    """
    if is_off(environment):
        return f"{VARIABLE}={environment[VARIABLE].strip()} is in its environment"
    if environment.get(_REMOTE_DEBUG_VARIABLE):
        return f"remote debugging is switched off in it ({_REMOTE_DEBUG_VARIABLE})"
    for option in _REMOTE_DEBUG_OPTIONS:
        if option in options:
            return f"remote debugging is switched off in it (-X {option})"
    return None


def x_options(command: Sequence[str]) -> set[str]:
    """The ``-X`` options of a Python's command line, without their values."""
    return _read(command)[0]


def program_of(command: Sequence[str]) -> tuple[str, str]:
    """What a Python's command line has it run.

    Returns:
        ``c`` or ``m``, and the code or the module; else nothing, and the script if there is one.
    """
    _, option, word = _read(command)
    return option, word


def _read(command: Sequence[str]) -> tuple[set[str], str, str]:
    """The ``-X`` options, and what `program_of` tells."""
    found: set[str] = set()
    words = iter(command[1:])
    for word in words:
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(words, "")
            continue
        if not word.startswith("-") or word == "-":
            return found, "", word
        for at, letter in enumerate(word[1:], 2):
            if letter in "cm":  # what follows is the program's
                return found, letter, word[at:] or next(words, "")
            if letter in "XW":
                value = word[at:] or next(words, "")
                if letter == "X":
                    found.add(value.partition("=")[0])
                break
    return found, "", ""
