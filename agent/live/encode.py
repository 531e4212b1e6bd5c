"""The rows of a live table as the answer to a request, within its limits.

Rules of this file: pure. The rows are there already, as plain values: they are written piece by
piece, so that an answer that is too large ends with the piece that makes it so, and other threads
get their turn in between.
"""

from __future__ import annotations

import json

from ...errors import LiveTooLarge
from ...messages.common import LiveRows
from ...settings import Settings

_PIECE_ROWS = 1000


def encode_live(live: LiveRows, settings: Settings) -> bytes:
    """What `codec.encode` makes of them.

    Raises:
        LiveTooLarge: They are more than an answer may have.
    """
    rows, most, limit = live.rows, settings.query_max_rows, settings.query_max_bytes
    if len(rows) > most:
        raise LiveTooLarge(live.table, most, "rows", "PROBING_QUERY_MAX_ROWS")
    head = _json({"table": live.table, "columns": live.columns, "note": live.note})
    pieces, size = [], len(head)
    for start in range(0, len(rows), _PIECE_ROWS):
        piece = _json(rows[start : start + _PIECE_ROWS])[1:-1]
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise LiveTooLarge(live.table, limit, "bytes", "PROBING_QUERY_MAX_BYTES")
    return b"".join((head[:-1], b',"rows":[', b",".join(pieces), b"]}"))


def _json(value: object) -> bytes:
    """As `codec.encode` writes."""
    return json.dumps(value, separators=(",", ":")).encode()
