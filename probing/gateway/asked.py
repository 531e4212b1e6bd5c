"""What a gateway is asked, and of what: live processes, a history, or both.

Rules of this file: plain data that travels to the helper that answers, and which of the two a
statement means. Over both, a live table is `steps`, `python.steps` or `live.python.steps`, and a
kept one `history.python.steps`: whoever names no history is told of what lives.
"""

from __future__ import annotations

import re

from ..errors import SqlError
from ..messages.frozen import dataclass
from ..sql.errors import name_at
from ..sql.quoting import put_in_code

LIVE, HISTORY = "live", "history"
ROWS, SCHEMA, TABLES = "rows", "schema", "tables"
_NAMED = r"""(?<![\w."])(?P<mark>"?)(?P<catalog>(?i:live|history))(?P=mark)
    \s*\.\s*(?="?(?i:python|probing)\b)"""
"""The name of a catalog before that of a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is served.

    Attributes:
        endpoints: Those of processes; none where no process is.
        history: A folder or the address of a store; empty for none.
    """

    endpoints: tuple[str, ...] = ()
    history: str = ""

    @property
    def catalogs(self) -> tuple[str, ...]:
        """The names of what is served."""
        return (*((LIVE,) if self.endpoints else ()), *((HISTORY,) if self.history else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question for a helper.

    Attributes:
        kind: ROWS of a statement, the SCHEMA of these, or which TABLES there are.
        timeout_s: What it may take.
        with_schemas: Whether the columns of tables are wanted.
    """

    kind: str
    place: Place
    sql: str = ""
    timeout_s: float = 30.0
    with_schemas: bool = False


def meant(sql: str, place: Place) -> tuple[str, str]:
    """Which catalog a statement asks, and the statement without the name `live`.

    Raises:
        SqlError: It names both.
    """
    found: set[str] = set()

    def without(match: re.Match[str]) -> str:
        found.add(catalog := match["catalog"].lower())
        return "" if catalog == LIVE else match[0]

    of_live = put_in_code(sql, _NAMED, without)
    if len(found) > 1:
        raise SqlError("a statement asks live processes or the history: one of the two, not both")
    is_kept = HISTORY in found or not place.endpoints
    return (HISTORY, sql) if is_kept and place.history else (LIVE, of_live)


def with_history(error: SqlError) -> SqlError:
    """The error of a statement that asks what lives; one that meant the history is told its name.

    Of `history.steps` nobody knew what it is: so may an alias be called.
    """
    typed = name_at(error.sql, error.position)
    if error.suggestion is None or not typed.lower().startswith(f"{HISTORY}."):
        return error
    return SqlError(
        f"there is no table {typed}",
        sql=error.sql,
        position=error.position,
        suggestion=f"{HISTORY}.{error.suggestion}",
    )
