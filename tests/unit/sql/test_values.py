"""Values in the places of question marks, as PEP 249 has them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from probing.errors import SqlError
from probing.sql.engine import Engine
from probing.sql.quoting import with_values

pytestmark = pytest.mark.anypython

VALUES: list[tuple[Any, object]] = [
    (np.float64(1.5), 1.5),
    (np.float32(0.25), 0.25),
    (np.float16(0.5), 0.5),
    (np.int64(-3), -3),
    (np.uint8(3), 3),
    (np.bool_(True), True),
    (np.array(7), 7),
    (np.str_("it's"), "it's"),
    (Decimal("-Infinity"), -math.inf),
    (Decimal("0.1"), Decimal("0.1")),
    (True, True),
    (1e-320, 1e-320),
]


def test_a_value_arrives_as_it_is() -> None:
    """Numbers of numpy as those of Python, and what a DECIMAL cannot be as a DOUBLE."""
    marks = ", ".join(f"? AS c{number}" for number in range(len(VALUES) + 2))
    given = [value for value, _ in VALUES] + [Decimal("NaN"), np.float64("nan")]
    sql = with_values(f"SELECT {marks}", given)
    answer = Engine([]).run(sql, timeout_s=30).to_arrow()
    *found, first, second = answer.to_pylist()[0].values()
    assert found == [value for _, value in VALUES]
    assert math.isnan(first)
    assert math.isnan(second)


@pytest.mark.parametrize(
    "value", [np.array([1, 2]), np.datetime64(1, "ns"), np.timedelta64(1, "s"), 1j]
)
def test_what_has_no_literal_is_refused(value: object) -> None:
    """Rather than to become another value."""
    with pytest.raises(SqlError, match="cannot stand in a statement"):
        with_values("SELECT ?", [value])


@pytest.mark.parametrize(
    "sql", ["SELECT E'it\\'s ?', {}", "SELECT 1 /* a /* ? */ ? */ + {}", 'SELECT $$ ? $$, "?", {}']
)
def test_no_value_is_put_into_a_text(sql: str) -> None:
    """Nor into a comment, whatever is in it and however it ends."""
    assert with_values(sql.format("?"), [7]) == sql.format("(7)")
