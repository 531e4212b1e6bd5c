"""Answers one request of a node server: a statement over the rings of its machine's ranks.

Rules of this file: those of `single_answer`.
"""

from __future__ import annotations

import os
import sys

import pyarrow as pa

from ...linux.limited_memory import limit_memory
from ...messages import common as wire
from ...messages.about.union import UnionRequest
from ...rundir.folders import from_env
from ...settings import Settings
from .node_answer import answer
from .single_answer import answer_once

_TIMES_A_QUERY = 4
"""What it may hold, by what the query of one process may: the rows of all its ranks meet in it."""


def _rows_of(asked: bytes) -> pa.Table:
    limit_memory(_TIMES_A_QUERY * Settings.from_env(os.environ).query_memory_mib)
    return answer(wire.decode(UnionRequest, asked), from_env())


if __name__ == "__main__":
    too_large = "the rows of its ranks need too much memory on that machine"
    sys.exit(answer_once(_rows_of, too_large=too_large))
