"""The SQL worker: a helper process in which an agent lets remote queries run.

Rules of this file: it is started by its path, as ``python -I sql_worker_main.py PARENT
FOLDER MEMORY_MIB [PLACE ...]``, with two pipes and a bare environment; the places are where
packages lie that ``-I`` has left out. It limits itself before it imports anything heavy,
answers one request after the other, and ends with its parent. A statement that kills it, or
for which its parent has to kill it, is one client's error and nobody else's.
"""

from __future__ import annotations

import ctypes
import functools
import io
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.extend(place for place in sys.argv[4:] if place not in sys.path)

from probing.errors import InternalError, NoSuchProcess, ProbingError, QueryTimedOut, SqlTooLarge
from probing.errors.querying import missing_library
from probing.linux.limited_memory import LEAST_MIB, limit_memory
from probing.messages import common as wire  # run as a script, they are found by now
from probing.rundir.folders import ProcessFolder, folder_at
from probing.safety.parent_death import end_with_parent
from probing.server.sql_worker.courtesy import Courtesy, stand_near
from probing.sql import frames as sql_frames  # run as a script, they are found by now
from probing.sql.frames import WorkerRequest

if TYPE_CHECKING:
    import pyarrow as pa

_LIVE_S = 2.0
_LONG_S = 3600.0
_PR_SET_NO_NEW_PRIVS = 38
_PIECE_BYTES = 256 << 10
_BARE_MIB = 128
"""What a worker holds before the first statement, with its libraries."""
_BESIDE_STATEMENT_S = 5
"""Processor time for what is not the statement: the tables that it reads, sending the answer."""


_BESIDE = " On the machine of the training, `query` by its pid needs none of it there."


def main(arguments: list[str]) -> int:
    """Answer requests until there are no more."""
    parent, place, memory_mib, *_ = arguments
    end_with_parent(int(parent))
    folder = folder_at(Path(place))
    limit_process(int(memory_mib))
    requests, answers = _take_pipes()
    try:
        if folder is None and place != sql_frames.NO_FOLDER:
            raise InternalError(f"{place} is not the run folder of a process")
        _import_engine()
    except ProbingError as error:
        _send(answers, wire.encode_error(error))
        return 1
    _send(answers, sql_frames.READY)
    courtesy = Courtesy()
    while (data := _receive(requests)) is not None:
        request = wire.decode(WorkerRequest, data)
        here = folder_at(Path(request.folder)) if request.folder else folder
        courtesy.run(functools.partial(_answer, here, request, answers))
    return 0


def limit_process(memory_mib: int) -> None:
    """Take away from this process what a query must not use up."""
    kernel = ctypes.CDLL(None, use_errno=True)
    kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    stand_near()
    # The worker stays in the session of the training: in one of its own the kernel would give it
    # the same share of a core, however nice it is. So Ctrl-C at the training reaches it, too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The agent's thread that started it blocks all, that of RLIMIT_CPU among them.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    limit_memory(memory_mib)
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 64)):
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


def engine_mib(memory_mib: int) -> int:
    """What of a worker's memory is the engine's: the rows and the answer need some, too.

    The engine counts only what goes through its buffers. A text, a list or a hash table of 2 GB
    does not, and meets the limit of the process.
    """
    return (max(memory_mib, LEAST_MIB) - _BARE_MIB) * 2 // 3


def limit_processor_time(limit_s: float) -> None:
    """Have the kernel end this process when a statement takes more, should its parent not do so."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + limit_s) + _BESIDE_STATEMENT_S
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _take_pipes() -> tuple[int, int]:
    """The descriptors of requests and answers; nothing else may read or write there."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return requests, answers


def _import_engine() -> None:
    """Load what a query needs, before the first one waits for it, and see that it runs."""
    try:
        from probing.client import base as client, providers  # noqa: F401
        from probing.ring import arrow_tables  # noqa: F401
        from probing.sql import engine

        with engine.Engine([]).run("SELECT 1", timeout_s=_LONG_S) as answer:
            list(answer.batches())
    except ImportError as error:
        missing = missing_library(error)
        if missing is not None:
            missing.help += _BESIDE
            raise missing from error
        raise InternalError(f"the SQL engine cannot be loaded ({error})") from error


def _answer(folder: ProcessFolder | None, request: WorkerRequest, answers: int) -> None:
    """Run one statement and send what comes of it."""
    try:
        if folder is None:  # removed meanwhile
            raise NoSuchProcess(f"in {request.folder}")
        schema, batches = _run(folder, request)
    except QueryTimedOut as error:
        from probing.sql.session import is_any_stuck

        error.is_stuck = is_any_stuck()
        _send(answers, wire.encode_error(error))
    except ProbingError as error:
        _send(answers, wire.encode_error(error))
    except MemoryError:
        _send(answers, wire.encode_error(SqlTooLarge("the answer needs too much memory")))
    else:
        _send(answers, sql_frames.OK)
        _send_rows(answers, schema, batches)


def _run(folder: ProcessFolder, request: WorkerRequest) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """The whole answer: whether it had to be cut stands in the schema, which goes first."""
    from probing.client.providers import providers_for
    from probing.sql.process_columns import OneProcess
    from probing.sql.threads import available

    limit_s = request.timeout_s
    threads = available() if folder.has_ended() else 1
    limit_processor_time(limit_s * threads)
    providers = providers_for(folder, limit_s=limit_s, timeout_s=min(_LIVE_S, limit_s))
    engine = OneProcess(
        providers,
        folder.read_card(),
        memory_mib=engine_mib(request.memory_mib),
        max_sql_bytes=request.max_sql_bytes,
        threads=threads,
    )
    with engine.run(
        request.sql,
        timeout_s=request.timeout_s,
        max_rows=request.max_rows,
        max_bytes=request.max_bytes,
    ) as answer:
        batches = list(answer.batches())
        schema = answer.schema
        if answer.truncated:
            cut = {wire.TRUNCATED_KEY: answer.truncated.encode()}
            schema = schema.with_metadata({**(schema.metadata or {}), **cut})
        return schema, batches


def _send_rows(answers: int, schema: pa.Schema, batches: list[pa.RecordBatch]) -> None:
    """Send the Arrow IPC stream in frames, and the empty one that ends them."""
    import pyarrow as pa

    raw: Any = _FrameWriter(answers)
    sink = io.BufferedWriter(raw, _PIECE_BYTES)
    with sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    _send(answers, b"")


class _FrameWriter(io.RawIOBase):
    """A file whose every write is a frame, or some where it is large.

    The agent holds a whole frame in memory, for every client that does not take it.
    """

    def __init__(self, answers: int) -> None:
        super().__init__()
        self._answers = answers

    def writable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Send it all."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _PIECE_BYTES):
            _send(self._answers, bytes(view[start : start + _PIECE_BYTES]))
        return len(view)


def _send(answers: int, data: bytes) -> None:
    """Send one frame."""
    view = memoryview(sql_frames.encode_frame(data))
    while view:
        view = view[os.write(answers, view) :]


def _receive(requests: int) -> bytes | None:
    """The next frame; None when the parent has gone."""
    head = _read(requests, sql_frames.LENGTH.size)
    return _read(requests, sql_frames.LENGTH.unpack(head)[0]) if head else None


def _read(requests: int, size: int) -> bytes | None:
    """Exactly `size` bytes, or None at the end."""
    data = b""
    while len(data) < size:
        part = os.read(requests, size - len(data))
        if not part:
            return None
        data += part
    return data


if __name__ == "__main__":
    code = main(sys.argv[1:])
    os._exit(code)  # no library gets a say in how a helper ends
