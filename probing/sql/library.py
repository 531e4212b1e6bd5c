"""DuckDB, as it is loaded here.

Rules of this file: the only place that says how. `import duckdb` loads the engine and, from 2.0 on,
ten thousand lines of Python over it that a statement does not need, at three times the cost of the
engine. Of the versions named here the engine is loaded alone; of any other, all.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

_KNOWN = ("2.0.",)
"""Whose engine is known to work alone, and to tell the types of a statement by `_bind`."""


def _load() -> tuple[Any, bool]:
    """The module that has the engine, and whether it is a known one."""
    try:
        import _duckdb
    except ImportError:
        _duckdb = None
    if str(getattr(_duckdb, "__version__", "")).startswith(_KNOWN):
        return sys.modules.get("duckdb", _duckdb), True
    import duckdb

    return duckdb, False


if TYPE_CHECKING:
    import duckdb

    IS_KNOWN = True
else:
    duckdb, IS_KNOWN = _load()


def load_whole() -> None:
    """Load what gives a connection its methods that make relations, and reads Arrow."""
    import duckdb  # noqa: F401
