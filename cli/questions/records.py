"""How parameters of saved questions come into SQL.

Rules of this file: texts in, texts out; no process is asked and no library imported. A value is put
in as one literal, so that it can never become a part of the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...errors import UsageError
from ...sql.quoting import put_in_code, text_literal

_PARAMETER = r"\$(?P<name>[A-Za-z_]\w*)"
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_NAME = re.compile(r"[A-Za-z_]\w*")


def read_parameters(words: Iterable[str]) -> dict[str, str]:
    """The parameters of ``-p NAME=VALUE``.

    Raises:
        UsageError: One is none.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(
                f"-p {word} is no parameter.", help="A parameter is NAME=VALUE, as in -p step=100."
            )
        found[name] = value
    return found


def put_in(sql: str, given: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> str:
    """The statement with a literal in the place of each ``$name``.

    Args:
        defaults: The values of those that are not given.

    Raises:
        UsageError: One has no value, or one was given that the statement does not have.
    """
    values = {**(defaults or {}), **given}
    for name, default in (defaults or {}).items():
        if _NUMBER.fullmatch(default) and not _NUMBER.fullmatch(values[name]):
            raise UsageError(
                f"the parameter {name} is a number, and {values[name]!r} is none.",
                help=f"As in -p {name}={default}.",
            )
    used: set[str] = set()

    def literal(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in values:
            raise UsageError(f"the statement has ${name}.", help=f"Give its value: -p {name}=VALUE")
        used.add(name)
        return _literal(values[name])

    text = put_in_code(sql, _PARAMETER, literal)
    for name in given:
        if name not in used:
            raise _no_parameter(name, used)
    return text


def _no_parameter(name: str, used: set[str]) -> UsageError:
    from ...sql.nearest import nearest

    near = nearest(name, sorted(used))
    hint = f" Did you mean {near}?" if near else ""
    names = ", ".join(f"${one}" for one in sorted(used)) or "none"
    return UsageError(f"the statement has no ${name}.{hint}", help=f"It has {names}.")


def _literal(value: str) -> str:
    """A value as SQL: a number as it is, anything else as a text."""
    if _NUMBER.fullmatch(value):
        return f"({value})"
    return text_literal(value)
