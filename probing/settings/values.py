"""What a setting is, the value that a text stands for, and variables that only look like one.

Rules of this file: text in, value, error or sentence out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import BadSetting

_PREFIX = "PROBING_"
_MOST_UNKNOWN = 8
_MOST: Mapping[str, float] = {
    "_hz": 1_000,
    "_rows": 100_000_000,
    "_per_s": 1_000_000_000,
    "_s": 86_400,
    "_hours": 1_000_000,
    "_mib": 1 << 20,
    "_bytes": 1 << 30,
}
_MOST_OF_ANY = 1_000_000_000
YES = ("1", "on", "true", "yes")
NO = ("0", "off", "false", "no")
"""The words for yes and no, of every setting; `safety.off_switch` goes by the same."""
_BOOLS = {**dict.fromkeys(YES, True), **dict.fromkeys(NO, False)}
_MODES = {**dict.fromkeys(YES, "on"), **dict.fromkeys(NO, "off"), "all": "all"}
TRACKERS = ("tensorboard", "wandb", "mlflow")


class Setting(NamedTuple):
    """What is known about one setting.

    Attributes:
        name: The field of `Settings`.
        env: The environment variable.
        type: ``bool``, ``int``, ``float`` or ``str``.
        default: Its value when nothing sets it.
        live: Whether `probing ENDPOINT config NAME=VALUE` can change it.
        secret: Whether its value is never shown.
        minimum: The smallest number it may be.
    """

    name: str
    env: str
    type: str
    default: bool | int | float | str
    doc: str
    live: bool
    secret: bool
    minimum: float

    @property
    def maximum(self) -> float:
        """The largest number it may be: by what it counts, which the end of its name says."""
        ends = (most for end, most in _MOST.items() if self.name.endswith(end))
        return next(ends, _MOST_OF_ANY)


def parse(setting: Setting, text: str) -> Any:
    """The value that a text stands for.

    Raises:
        BadSetting: The text is not a value of the setting's type, or out of its range.
    """
    word = text.strip()
    if setting.name == "mode":
        return _choose(setting, _MODES, word)
    if setting.type == "bool":
        return _choose(setting, _BOOLS, word)
    if setting.type == "str":
        check = _CHECKS.get(setting.name)
        return check(setting, word) if check is not None else word
    convert: Callable[[str], float] = int if setting.type == "int" else float
    try:
        value = convert(word)
    except ValueError:
        shown = "an integer" if setting.type == "int" else "a number"
        raise BadSetting(setting.env, f"{word!r} is not {shown}") from None
    if math.isnan(value):
        raise BadSetting(setting.env, f"{word!r} is not a number")
    if value < setting.minimum:
        raise BadSetting(setting.env, f"{word} is less than {number(setting.minimum)}, the least")
    if not value <= setting.maximum:
        raise BadSetting(setting.env, f"{word} is more than {number(setting.maximum)}, the most")
    return value


def number(limit: float) -> str:
    """A limit as one would write it."""
    return f"{limit:.0f}" if limit == int(limit) else f"{limit:g}"


def _place(setting: Setting, word: str) -> str:
    """A folder that is the same from wherever it is looked for."""
    if word and not word.startswith("/"):
        raise BadSetting(setting.env, f"{word!r} is a relative path, not one that begins with /")
    return word


def _trackers(setting: Setting, word: str) -> str:
    """Names of trackers, each of which is known."""
    names = [name.strip().lower() for name in word.split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            raise BadSetting(setting.env, f"{name!r} is not one of {', '.join(TRACKERS)}")
    return ",".join(names)


_CHECKS: Mapping[str, Callable[[Setting, str], str]] = {
    "home": _place,
    "metrics_from": _trackers,
}


def _choose(setting: Setting, choices: Mapping[str, Any], word: str) -> Any:
    """The choice that a word names, whatever its case."""
    try:
        return choices[word.lower()]
    except KeyError:
        raise BadSetting(setting.env, f"{word!r} is not one of {', '.join(choices)}") from None


def unknown_in(env: Mapping[str, str], settings: Sequence[Setting]) -> tuple[str, ...]:
    """A sentence for each variable that is called as settings are, and is none."""
    known = [setting.env for setting in settings]
    names = sorted(name for name in env if name.startswith(_PREFIX) and name not in known)
    return tuple([_unknown(name, known) for name in names[:_MOST_UNKNOWN]])


def _unknown(name: str, known: Sequence[str]) -> str:
    """What to say of a variable, with the setting whose end is most like its own."""
    import difflib  # only after a mistake

    ends = [one.removeprefix(_PREFIX) for one in known if one.startswith(_PREFIX)]
    near = difflib.get_close_matches(name.removeprefix(_PREFIX).upper(), ends, n=1)
    hint = f"the nearest is {_PREFIX}{near[0]}" if near else "`probing config` lists them"
    return f"{name} is set, and is no setting: it changes nothing; {hint}"
