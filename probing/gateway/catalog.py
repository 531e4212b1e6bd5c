"""What clients ask about a server before they ask for rows: its tables, types and abilities.

Rules of this file: the columns of each answer are those of the specification of Flight SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

import pyarrow as pa

from .._version import VERSION
from .asked import Place
from .messages import Command, given

_TEXT = pa.string()
TABLE = "TABLE"
_KEYS = pa.schema(
    [
        ("catalog_name", _TEXT),
        ("db_schema_name", _TEXT),
        pa.field("table_name", _TEXT, nullable=False),
        pa.field("column_name", _TEXT, nullable=False),
        ("key_name", _TEXT),
        pa.field("key_sequence", pa.int32(), nullable=False),
    ]
)
_FOREIGN_KEYS = pa.schema(
    [
        ("pk_catalog_name", _TEXT),
        ("pk_db_schema_name", _TEXT),
        pa.field("pk_table_name", _TEXT, nullable=False),
        pa.field("pk_column_name", _TEXT, nullable=False),
        ("fk_catalog_name", _TEXT),
        ("fk_db_schema_name", _TEXT),
        pa.field("fk_table_name", _TEXT, nullable=False),
        pa.field("fk_column_name", _TEXT, nullable=False),
        pa.field("key_sequence", pa.int32(), nullable=False),
        ("fk_key_name", _TEXT),
        ("pk_key_name", _TEXT),
        pa.field("update_rule", pa.uint8(), nullable=False),
        pa.field("delete_rule", pa.uint8(), nullable=False),
    ]
)
_TYPES = pa.schema(
    [
        pa.field("type_name", _TEXT, nullable=False),
        pa.field("data_type", pa.int32(), nullable=False),
        ("column_size", pa.int32()),
        ("literal_prefix", _TEXT),
        ("literal_suffix", _TEXT),
        ("create_params", pa.list_(pa.field("item", _TEXT, nullable=False))),
        pa.field("nullable", pa.int32(), nullable=False),
        pa.field("case_sensitive", pa.bool_(), nullable=False),
        pa.field("searchable", pa.int32(), nullable=False),
        ("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), nullable=False),
        ("auto_increment", pa.bool_()),
        ("local_type_name", _TEXT),
        ("minimum_scale", pa.int32()),
        ("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), nullable=False),
        ("datetime_subcode", pa.int32()),
        ("num_prec_radix", pa.int32()),
        ("interval_precision", pa.int32()),
    ]
)
_TYPE_NUMBERS = {"BOOLEAN": -7, "BIGINT": -5, "BLOB": -2, "INTEGER": 4, "DOUBLE": 8, "VARCHAR": 12}
"""The types of our columns, by the numbers of JDBC."""
_CATALOGS = pa.schema([pa.field("catalog_name", _TEXT, nullable=False)])
_SCHEMAS = pa.schema([("catalog_name", _TEXT), pa.field("db_schema_name", _TEXT, nullable=False)])
_TABLES = pa.schema(
    [
        ("catalog_name", _TEXT),
        ("db_schema_name", _TEXT),
        pa.field("table_name", _TEXT, nullable=False),
        pa.field("table_type", _TEXT, nullable=False),
    ]
)
_WITH_SCHEMA = _TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
_TABLE_TYPES = pa.schema([pa.field("table_type", _TEXT, nullable=False)])
_VALUES = pa.dense_union(
    [
        pa.field("string_value", _TEXT),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(_TEXT)),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
_INFO = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field("value", _VALUES, nullable=False),
    ]
)
_ABILITIES: dict[int, str | bool | int] = {
    0: "probing",
    1: VERSION,
    2: pa.__version__,
    3: True,  # it only reads
    4: True,  # it takes SQL
    5: False,  # but no plans of Substrait
    8: 0,  # no transactions
    9: False,  # a statement ends with its call
    500: False,  # no catalog can be made, nor a schema, nor a table
    501: False,
    502: False,
    504: '"',
}
"""What a server can do, by the numbers of the specification."""

_FIXED = {
    "CommandGetCatalogs": _CATALOGS,
    "CommandGetDbSchemas": _SCHEMAS,
    "CommandGetTableTypes": _TABLE_TYPES,
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetExportedKeys": _FOREIGN_KEYS,
    "CommandGetImportedKeys": _FOREIGN_KEYS,
    "CommandGetCrossReference": _FOREIGN_KEYS,
    "CommandGetXdbcTypeInfo": _TYPES,
    "CommandGetSqlInfo": _INFO,
}


class Find(Protocol):
    """Gives all tables."""

    def __call__(self, *, with_schemas: bool) -> pa.Table:
        """With their columns, where that is wanted."""


def schema_for(command: Command) -> pa.Schema | None:
    """The columns of what is asked about the server; None where that is something else."""
    if command.name == "CommandGetTables":
        return _WITH_SCHEMA if command.body.include_schema else _TABLES
    return _FIXED.get(command.name)


def rows_for(command: Command, place: Place, find: Find) -> pa.Table:
    """What is told about the server.

    Raises:
        ProbingError: The tables cannot be found.
    """
    body, schema = command.body, schema_for(command)
    assert schema is not None  # it was asked about the server
    if command.name == "CommandGetCatalogs":
        return pa.Table.from_pylist([{"catalog_name": name} for name in place.catalogs], schema)
    if command.name == "CommandGetTableTypes":
        return pa.Table.from_pylist([{"table_type": TABLE}], schema)
    if command.name == "CommandGetSqlInfo":
        return _abilities(body.info)
    if command.name == "CommandGetXdbcTypeInfo":
        return pa.Table.from_pylist(_types(given(body, "data_type")), schema)
    if command.name == "CommandGetDbSchemas":
        rows = _chosen(body, find(with_schemas=False))
        pairs = dict.fromkeys((row["catalog_name"], row["db_schema_name"]) for row in rows)
        return pa.Table.from_pylist(
            [dict(zip(schema.names, pair, strict=True)) for pair in pairs], schema
        )
    if command.name == "CommandGetTables":
        rows = _chosen(body, find(with_schemas=body.include_schema))
        if body.table_types and TABLE not in body.table_types:
            rows = []
        return pa.Table.from_pylist([{**row, "table_type": TABLE} for row in rows], schema)
    return schema.empty_table()


def _chosen(body: Any, tables: pa.Table) -> list[dict[str, Any]]:
    """The tables that fit what is asked, in the order of their names."""
    catalog = given(body, "catalog")
    patterns = {
        "db_schema_name": given(body, "db_schema_filter_pattern"),
        "table_name": given(body, "table_name_filter_pattern")
        if "table_name_filter_pattern" in body.DESCRIPTOR.fields_by_name
        else None,
    }
    found = [
        row
        for row in tables.to_pylist()
        if (not catalog or row["catalog_name"] == catalog)
        and all(p is None or _fits(p, row[name]) for name, p in patterns.items())
    ]
    return sorted(
        found, key=lambda row: (row["catalog_name"], row["db_schema_name"], row["table_name"])
    )


def _fits(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern of SQL's LIKE."""
    parts = re.split(r"(%|_)", pattern)
    text = "".join({"%": ".*", "_": "."}.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(text, name, re.DOTALL | re.IGNORECASE) is not None


def _types(number: int | None) -> list[dict[str, Any]]:
    """Our types, or the one of that number."""
    return [
        {
            "type_name": name,
            "data_type": value,
            "literal_prefix": "'" if name == "VARCHAR" else None,
            "literal_suffix": "'" if name == "VARCHAR" else None,
            "nullable": 1,
            "case_sensitive": name == "VARCHAR",
            "searchable": 3,
            "unsigned_attribute": False,
            "fixed_prec_scale": False,
            "auto_increment": False,
            "local_type_name": name,
            "sql_data_type": value,
        }
        for name, value in sorted(_TYPE_NUMBERS.items(), key=lambda item: item[1])
        if number is None or number == value
    ]


def _abilities(wanted: Iterable[int]) -> pa.Table:
    """What the server can do: all, or what is wanted of it."""
    asked = set(wanted)
    shown = {name: value for name, value in _ABILITIES.items() if not asked or name in asked}
    columns: list[list[Any]] = [[] for _ in range(_VALUES.num_fields)]
    kinds, offsets = [], []
    for value in shown.values():
        kind = 0 if isinstance(value, str) else 1 if isinstance(value, bool) else 3
        kinds.append(kind)
        offsets.append(len(columns[kind]))
        columns[kind].append(value)
    fields = [_VALUES.field(i) for i in range(_VALUES.num_fields)]
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(each, field.type) for each, field in zip(columns, fields, strict=True)],
        [field.name for field in fields],
    )
    return pa.Table.from_arrays([pa.array(list(shown), pa.uint32()), values], schema=_INFO)
