"""How many threads a statement gets.

Rules of this file: more than one only where an answer does not hang on the order in which rows are
looked at, but for the last digits of sums of fractions and the order of rows that no ORDER BY says,
and where there are so many rows that it pays. A function that is not named here may be of any kind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scans import Scan

_MOST_THREADS = 4
"""More than the reading of a ring can feed."""
_LEAST_BYTES = 16 << 20
"""The ring from which on a second thread saves more than its start costs."""
_BEFORE_BRACKET = re.compile(r"(\w+)\"?\s*\(")
_BY_ORDER = re.compile(
    r"--|/\*|\bdistinct\s+on\b|\b(?:sample|tablesample|positional)\b", re.IGNORECASE
)
"""What takes whichever row comes first; and comments, which may stand before a bracket."""
_HARMLESS = re.compile(
    # words of the language
    r"all|and|any|as|between|by|case|else|exists|filter|from|having|in|join|not|on|or|select|then"
    r"|union|using|values|when|where|with"
    # aggregates
    r"|avg|bool_and|bool_or|count|count_if|count_star|countif|max|mean|median|min|quantile"
    r"|quantile_cont|quantile_disc|stddev|stddev_pop|stddev_samp|sum|var_pop|var_samp|variance"
    # functions of one row
    r"|abs|cast|ceil|coalesce|concat|contains|date_trunc|epoch_ms|epoch_ns|floor|greatest|if|ifnull"
    r"|isfinite|isinf|isnan|least|length|lower|ltrim|make_timestamp|make_timestamp_ns|nullif|prefix|regexp_extract"
    r"|regexp_matches|regexp_replace|replace|round|rtrim|split_part|starts_with|strftime|substr"
    r"|substring|suffix|trim|try_cast|upper",
    re.IGNORECASE,
)


def available() -> int:
    """How many threads a statement may have in a process of the operator's own."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


def threads_for(sql: str, scans: Sequence[Scan], most: int) -> int:
    """How many of `most` threads a statement over these tables gets."""
    if most < 2 or all(scan.bytes < _LEAST_BYTES for scan in scans):
        return 1
    if _BY_ORDER.search(sql) or not all(map(_HARMLESS.fullmatch, _BEFORE_BRACKET.findall(sql))):
        return 1
    return most
