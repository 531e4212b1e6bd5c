"""The messages of Flight SQL, by the names and field numbers of its published specification.

Rules of this file: words alone. Only what a server that reads is sent, or sends, is here; a message
of another kind is one whose name is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ..errors import BadRequest

_PACKAGE = "arrow.flight.protocol.sql"
_PREFIX = "type.googleapis.com/"
_OF_A_TABLE = "catalog:1? db_schema:2? table:3"
_HANDLE = "prepared_statement_handle:1b"
_FIELDS = {
    "CommandGetSqlInfo": "info:1*u",
    "CommandGetXdbcTypeInfo": "data_type:1?i",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "catalog:1? db_schema_filter_pattern:2?",
    "CommandGetTables": "catalog:1? db_schema_filter_pattern:2? table_name_filter_pattern:3?"
    " table_types:4* include_schema:5o",
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _OF_A_TABLE,
    "CommandGetExportedKeys": _OF_A_TABLE,
    "CommandGetImportedKeys": _OF_A_TABLE,
    "CommandGetCrossReference": "pk_catalog:1? pk_db_schema:2? pk_table:3 fk_catalog:4?"
    " fk_db_schema:5? fk_table:6",
    "CommandStatementQuery": "query:1",
    "CommandStatementUpdate": "query:1",
    "CommandStatementIngest": "",
    "CommandPreparedStatementQuery": _HANDLE,
    "CommandPreparedStatementUpdate": _HANDLE,
    "ActionCreatePreparedStatementRequest": "query:1",
    "ActionCreatePreparedStatementResult": f"{_HANDLE} dataset_schema:2b parameter_schema:3b",
    "ActionClosePreparedStatementRequest": _HANDLE,
    "TicketStatementQuery": "statement_handle:1b",
}
"""Each message: its fields as name:number, then ? for one that may be absent, * for many, and the
letter of its type; a text without one."""
_TYPES = {"": 9, "b": 12, "o": 8, "i": 5, "u": 13}
"""The numbers by which descriptors tell string, bytes, bool, int32 and uint32."""
_ONE, _MANY = 1, 3


class Command(NamedTuple):
    """A message that has come.

    Attributes:
        name: What it is.
        body: Its fields.
    """

    name: str
    body: Any


def _declare(file: Any) -> None:
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            field, _, told = text.partition(":")
            mark = "?" if "?" in told else "*" if "*" in told else ""
            number = told.rstrip("?*biou")
            added = message.field.add(
                name=field,
                number=int(number),
                type=_TYPES[told[len(number) :].lstrip("?*")],
                label=_MANY if mark == "*" else _ONE,
            )
            if mark == "?":
                added.proto3_optional = True
                added.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")


def _classes() -> Iterator[tuple[str, Any]]:
    file = descriptor_pb2.FileDescriptorProto(
        name="probing_flight_sql.proto", package=_PACKAGE, syntax="proto3"
    )
    _declare(file)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    for name in _FIELDS:
        found = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        yield name, message_factory.GetMessageClass(found)


_CLASSES = dict(_classes())


def packed(name: str, **fields: Any) -> bytes:
    """A message as it travels: within another one that says which it is."""
    value = _CLASSES[name](**fields).SerializeToString()
    around = any_pb2.Any(type_url=f"{_PREFIX}{_PACKAGE}.{name}", value=value)
    return bytes(around.SerializeToString())


def unpacked(data: bytes) -> Command:
    """The message that has come.

    Raises:
        BadRequest: It is none of Flight SQL, or not one that is known here.
    """
    around = any_pb2.Any()
    try:
        around.ParseFromString(data)
        name = around.type_url.rpartition("/")[2].removeprefix(f"{_PACKAGE}.")
        if name not in _CLASSES:
            raise BadRequest(f"this server of Flight SQL does not know {name or 'what came'}")
        body = _CLASSES[name]()
        body.ParseFromString(around.value)
    except DecodeError:
        raise BadRequest("what came is no message of Flight SQL") from None
    return Command(name, body)


def given(body: Any, field: str) -> Any:
    """A field that may be absent; None where it is."""
    return getattr(body, field) if body.HasField(field) else None
