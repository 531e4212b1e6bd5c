"""The server itself: which call asks what, and how errors travel.

Rules of this file: called by threads of gRPC. A call for where rows are runs nothing: what is to be
run travels in the ticket, and runs when that is redeemed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from ..errors import (
    BadRequest,
    Busy,
    ProbingError,
    QueryTimedOut,
    RemoteError,
    SqlRefused,
    TimedOut,
    Unreachable,
)
from ..server.access.auth import Listening
from ..sql.quoting import marks_in, with_values
from .access import Access, NoQuestions
from .asked import ROWS, SCHEMA, TABLES, Asked, Place
from .catalog import Find, rows_for, schema_for
from .helpers import Gone, Helpers
from .messages import Command, packed, unpacked
from .statements import Statements

T = TypeVar("T")

_CREATE, _CLOSE = "CreatePreparedStatement", "ClosePreparedStatement"
_STATEMENT, _PREPARED = "CommandStatementQuery", "CommandPreparedStatementQuery"
_UPDATE = "CommandPreparedStatementUpdate"
_TICKET = "TicketStatementQuery"
_READS_ONLY = "it was sent as a statement that changes something, and only those that read are run"
_ONE_ROW = f"{_READS_ONLY}: execute one that reads, and not executemany, for one row of values"


class Gateway(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Answers calls of Flight SQL.

    Args:
        location: Where to listen, as ``grpc://host:port``.
        served: Whose tokens calls need.
        place: What is asked.
        timeout_s: What a statement may take.
        certificate: Certificate and key in PEM; None where it is not encrypted.
    """

    def __init__(
        self,
        location: str,
        served: Listening,
        place: Place,
        *,
        timeout_s: float,
        certificate: tuple[str, str] | None = None,
    ) -> None:
        self._place, self._timeout_s = place, timeout_s
        self._helpers = Helpers()
        self._statements = Statements()
        super().__init__(
            location,
            auth_handler=NoQuestions(),
            tls_certificates=[certificate] if certificate else None,
            middleware={"access": Access(served)},
        )

    def close(self) -> None:
        """End what runs, then the server."""
        self._helpers.close()
        self.shutdown()

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Where the rows of a command are: here, by a ticket."""
        with _told():
            command = unpacked(descriptor.command)
            schema = schema_for(command)
            ticket = descriptor.command if schema is not None else self._ticket(command)
            endpoint = flight.FlightEndpoint(ticket, [])
            return flight.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The columns of a command's rows."""
        with _told():
            command = unpacked(descriptor.command)
            schema = schema_for(command)
            if schema is None:
                schema = self._schema(self._sql(command), context)
            return flight.SchemaResult(schema)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Rows, as they are computed."""
        with _told():
            command = unpacked(ticket.ticket)
            if schema_for(command) is not None:
                find = self._finding(context)
                return flight.RecordBatchStream(rows_for(command, self._place, find))
            sql = self._sql(command)
            answer = self._asked(context, ROWS, sql=sql)
            return flight.GeneratorStream(next(answer), _told_of(answer))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take the values of a prepared statement; whatever else is sent is refused."""
        with _told():
            command = unpacked(descriptor.command)
            if command.name != _PREPARED:
                raise SqlRefused(_ONE_ROW if command.name == _UPDATE else _READS_ONLY)
            table = reader.read_all()
            columns = [column.to_pylist() for column in table.columns]
            rows = list(zip(*columns, strict=True)) if columns else [()]
            self._statements.bind(command.body.prepared_statement_handle, rows)

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Prepare a statement, or close one."""
        with _told():
            if action.type not in {_CREATE, _CLOSE}:
                raise pa.ArrowNotImplementedError(f"there is no action {action.type}")
            command = unpacked(action.body.to_pybytes())
            if action.type == _CLOSE:
                self._statements.forget(command.body.prepared_statement_handle)
                return iter(())
            return iter([self._prepare(command.body.query, context)])

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """What `do_action` does."""
        return [(_CREATE, "Prepare a statement."), (_CLOSE, "Close one.")]

    def _prepare(self, sql: str, context: Any) -> bytes:
        """A statement that is checked, by its handle."""
        marks = marks_in(sql)
        schema = self._schema(with_values(sql, [None] * marks), context)
        values = pa.schema([(f"value_{number}", pa.string()) for number in range(1, marks + 1)])
        return packed(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self._statements.add(sql),
            dataset_schema=schema.serialize().to_pybytes(),
            parameter_schema=values.serialize().to_pybytes() if marks else b"",
        )

    def _ticket(self, command: Command) -> bytes:
        """What is handed in to get the rows of a statement."""
        return packed(_TICKET, statement_handle=self._sql(command).encode())

    def _sql(self, command: Command) -> str:
        """The statement of a command.

        Raises:
            BadRequest: It has none.
            SqlRefused: It is one that writes.
        """
        if command.name == _STATEMENT:
            return str(command.body.query)
        if command.name == _PREPARED:
            return self._statements.text(command.body.prepared_statement_handle)
        if command.name == _TICKET:
            return bytes(command.body.statement_handle).decode("utf-8", "replace")
        if "Update" in command.name or "Ingest" in command.name:
            raise SqlRefused(_READS_ONLY)
        raise BadRequest(f"{command.name} asks for no rows")

    def _schema(self, sql: str, context: Any) -> pa.Schema:
        with contextlib.closing(self._asked(context, SCHEMA, sql=sql)) as answer:
            return next(answer)

    def _finding(self, context: Any) -> Find:
        def find(*, with_schemas: bool) -> pa.Table:
            answer = self._asked(context, TABLES, with_schemas=with_schemas)
            with contextlib.closing(answer):
                schema = next(answer)
                return pa.Table.from_batches(answer, schema)

        return find

    def _asked(self, context: Any, kind: str, **words: Any) -> Generator[Any, None, None]:
        asked = Asked(kind=kind, place=self._place, timeout_s=self._timeout_s, **words)
        return self._helpers.answer(asked, context.is_cancelled)


def _told_of(answer: Generator[T, None, None]) -> Iterator[T]:
    """An answer whose errors are told."""
    with _told(), contextlib.closing(answer):
        yield from answer


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Have errors travel as a sentence, and what to do."""
    try:
        yield
    except Gone:
        raise flight.FlightCancelledError("the client has gone") from None
    except ProbingError as error:
        raise _translated(error) from None


def _translated(error: ProbingError) -> Any:
    """The same as gRPC has it, with the sentence alone: pyarrow adds where others come from."""
    code = error.code if isinstance(error, RemoteError) else ""
    words = error.message.rstrip(".")
    if isinstance(error, TimedOut) or code in {TimedOut.code, QueryTimedOut.code}:
        return flight.FlightTimedOutError(words)
    if isinstance(error, SqlRefused) or code == SqlRefused.code:
        return flight.FlightUnauthorizedError(words)
    if isinstance(error, (Busy, Unreachable)):
        return flight.FlightUnavailableError(words)
    return flight.FlightServerError(words)
