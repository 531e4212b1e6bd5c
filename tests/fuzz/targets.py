"""What is fuzzed: each target reads any bytes, and an exception that leaves it is a finding.

Rules of this file: a target is one function of bytes and its seeds, good inputs to begin from. What
a parser may raise is caught there, by its type; what it returns is looked at again, so that a wrong
answer is a finding, too. Nothing here knows a fuzzer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import struct
import tempfile
import typing
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from probing.agent.listener import _begins_other_than_ping
from probing.errors import BadHost, BadRequest, BadToken, RingError
from probing.messages import codec, common as wire, routes
from probing.messages.about.act import ActRequest
from probing.messages.card import Card
from probing.postmortem import crashes, error_files, exits, launcher_logs, terminations
from probing.ring import peek as ring_peek, reader as ring_reader
from probing.ring.arrow_tables import RecordedTable
from probing.ring.format import (
    HEADER_SIZE,
    MAGIC,
    RingHeader,
    decode_header,
    encode_header,
    layout_of,
)
from probing.ring.names import decode_names
from probing.ring.native import IN_C
from probing.rundir.folders import ProcessFolder
from probing.rundir.node_card import NodeCard
from probing.server.access.auth import check_access, check_host
from probing.settings import Settings
from probing.tables import RECORDED_TABLES, TABLES_BY_NAME
from tests.harness.name_lists import encode_names
from tests.harness.ring_writer import trace_values, trace_writer

_SIZES = struct.Struct("<HI")
_FIXED = struct.Struct("<8sIIQqQII")
_SLOTS = 8


class Target(NamedTuple):
    """One parser, or some that read the same bytes."""

    name: str
    read: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


class Scratch:
    """A run folder in which files are written again and again."""

    def __init__(self) -> None:
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.held = tempfile.TemporaryDirectory(dir=base)
        self.folder = ProcessFolder(Path(self.held.name), (1 << 22) + 1, 1)


_scratch: list[Scratch] = []


def _folder() -> ProcessFolder:
    """The one folder of this process."""
    if not _scratch:
        _scratch.append(Scratch())
    return _scratch[0].folder


def clean() -> None:
    """Remove that folder."""
    while _scratch:
        _scratch.pop().held.cleanup()


def read_header(data: bytes) -> None:
    """The header of a ring: its text is the fuzzer's, the sum that guards it is right."""
    if len(data) < _SIZES.size:
        return
    row_size, capacity = _SIZES.unpack_from(data)
    text = data[_SIZES.size :]
    fixed = _FIXED.pack(MAGIC, HEADER_SIZE, row_size, capacity, 0, 0, len(text), zlib.crc32(text))
    whole = (fixed + text).ljust(HEADER_SIZE, b"\0")
    try:
        header = decode_header(whole, source="fuzzed")
    except RingError:
        return
    assert isinstance(header, RingHeader)
    path = _folder().ring("fuzzed")
    path.write_bytes(whole + bytes(min(4 * row_size, 1 << 14)))
    with contextlib.suppress(RingError):
        ring_reader.read_ring(path)


def _header_seeds() -> Iterator[bytes]:
    for table in RECORDED_TABLES:
        layout = layout_of(table)
        header = encode_header(layout, capacity=_SLOTS, clock_offset_ns=0)
        text = header[_FIXED.size :].rstrip(b"\0")
        yield _SIZES.pack(layout.row_size, _SLOTS) + text


def read_rows(data: bytes) -> None:
    """The rows of a ring with a good header, read by all who read rows; the books balance."""
    table = TABLES_BY_NAME["torch_trace"]
    folder = _folder()
    path = folder.ring(table.name)
    header = encode_header(layout_of(table), capacity=_SLOTS, clock_offset_ns=0)
    path.write_bytes(header + data)
    snapshot = ring_reader.read_ring(path)
    shown = len(snapshot.rows)
    assert snapshot.written == shown + snapshot.overwritten + snapshot.torn
    assert min(shown, snapshot.overwritten, snapshot.torn) >= 0
    loaded = RecordedTable(table, folder).load(None)
    assert loaded.num_rows == shown
    if IN_C is not None:
        batch = pa.table(RecordedTable(table, folder).load_batch(None))
        batch.validate(full=True)
        assert batch["seq"].equals(loaded["seq"])
    ring_peek.table_status(folder, table)
    folder.ring("steps").write_bytes(header + data)
    ring_peek.tables_answer(folder)


def _row_seeds() -> Iterator[bytes]:
    for rows in (0, 3, _SLOTS, 3 * _SLOTS + 2):
        writer = trace_writer(capacity=_SLOTS)
        for number in range(1, rows + 1):
            writer.write(**trace_values(number))
        writer.open(**trace_values(rows + 1))
        yield bytes(writer.data[HEADER_SIZE:])


def read_names(data: bytes) -> None:
    """The names file: what was read and is written again is read as the same."""
    names = decode_names(data)
    assert names[0] is None
    texts = [name for name in names[1:] if name is not None]
    if all(len(text.encode("utf-8", "replace")) <= 1024 for text in texts):
        assert decode_names(encode_names(texts)) == [None, *texts]


def read_card(data: bytes) -> None:
    """Cards, of this version or of a later one."""
    for kind in (Card, NodeCard):
        _decode(kind, data)
    path = _folder().path / "card.json"
    path.write_bytes(data)
    card = _folder().read_card()
    assert card is None or isinstance(card, Card)
    _folder().may_live()


def _decode(kind: type[Any], data: bytes) -> None:
    """Decode; what comes out and is encoded again is read as the same."""
    for decode in (codec.decode, codec.decode_request):
        try:
            value = decode(kind, data)
        except BadRequest:
            continue
        for encode in (codec.encode, codec.encode_request):
            assert codec.encode(codec.decode(kind, encode(value))) == codec.encode(value)


def _wire_kinds() -> tuple[type[Any], ...]:
    """Every class that travels, once."""
    every = (*routes.ROUTES, *routes.NODE_ROUTES)
    kinds = [kind for route in every for kind in (route.request, route.answer)]
    found = {kind.__name__: kind for kind in kinds if dataclasses.is_dataclass(kind)}
    return tuple(typing.cast("type[Any]", found[name]) for name in sorted(found))


_KINDS = _wire_kinds()


def read_wire(data: bytes) -> None:
    """What travels as JSON: the first byte says as what the rest is read."""
    if not data:
        return
    _decode(_KINDS[data[0] % len(_KINDS)], data[1:])
    try:
        wire.decode_error(data[1:])
    except BadRequest:
        return


def _wire_seeds() -> Iterator[bytes]:
    simple = {str: "x", int: 1, float: 1.5, bool: True}
    for place, kind in enumerate(_KINDS):
        hints = typing.get_type_hints(kind)
        members = {name: simple.get(hint, []) for name, hint in hints.items()}
        yield bytes([place]) + json.dumps(members).encode()
    members = {"code": "x", "status": 400, "exit_code": 2, "message": "m", "help": "", "detail": {}}
    yield b"\0" + json.dumps({"error": members}).encode()


def read_error_file(data: bytes) -> None:
    """What a rank may have written for torchrun."""
    error_files.parse(data)


def read_launcher_log(data: bytes) -> None:
    """What a launcher may have written of the end of its ranks."""
    launcher_logs.parse(data, 42)


_LAUNCHER_LOG = (
    b"exitcode  : -9 (pid: 42)  (SIGKILL)\nfailed (exitcode: 1) local_rank: 1 (pid: 42) of binary\n"
    b"process rank 2 with PID 42 on node gpu7 exited on signal 11\n"
)
_ERROR_FILE = json.dumps(
    {"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "", "timestamp": "1"}}}
).encode()


def read_action(data: bytes) -> None:
    """Who is let act and who acts read a body alike: none that writes a file looks harmless."""
    try:
        asked = codec.decode(ActRequest, data)
    except BadRequest:
        routes.ROUTES_BY_NAME["act"].writes(data)  # type: ignore[misc]
        return
    assert routes.ROUTES_BY_NAME["act"].writes(data) == (  # type: ignore[misc]
        asked.checkpoint is not None
    )


class _Listening:
    """A listener that admission is asked about."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.token, self.read_token = "f" * 64, "a" * 64
        self.listen: str | None = "127.0.0.1:4321"


def read_head(data: bytes) -> None:
    """The head of a request: who the listener takes for a ping, whom admission lets in."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data[:4096])
        there.close()
        is_other = _begins_other_than_ping(here)
        assert is_other == (bool(data) and data[:13] != b"GET /v1/ping ")
    texts = [line.decode("utf-8", "surrogateescape") for line in data.split(b"\r\n")[:4]]
    served = _Listening()
    with contextlib.suppress(BadHost):
        check_host(texts, served, ("127.0.0.1", 4321))
        assert texts[0] in {f"{h}:4321" for h in ("127.0.0.1", "localhost", "[::1]")}
    with contextlib.suppress(BadToken):
        check_access(texts, served, "status", "read")
        assert texts[0] in {f"Bearer {served.token}", f"Bearer {served.read_token}"}


def read_crash(data: bytes) -> None:
    """What faulthandler, or the agent, left of the end of a process."""
    folder = _folder()
    folder.fatal_signal.write_bytes(data)
    folder.exception.write_bytes(data)
    folder.thread_exception.write_bytes(data)
    folder.ring("steps").unlink(missing_ok=True)
    record = crashes.read_crash(folder)
    if record is not None:
        assert crashes.describe(record)
    folder.exit_calls.write_bytes(data)
    folder.exit_code.write_bytes(data)
    exits.exit_of(folder)
    exits.exit_call(folder, 1)
    folder.terminated.write_bytes(data)
    terminations.termination_of(folder, None)


_FATAL_SEED = b"""{"main": 140, "agent": "/x/probing/agent/"}
Fatal Python error: Segmentation fault

Current thread 0x000000000000008c [MainThread] (most recent call first):
  File "/home/u/train.py", line 12 in forward
  File "/home/u/tr\\xe9in.py", line ??? in <module>

Thread 0x000000000000008d (most recent call first):
  <no Python frame>
"""


def _crash_seeds() -> Iterator[bytes]:
    yield _FATAL_SEED
    record = crashes.CrashRecord(
        when_ns=1, kind=crashes.EXCEPTION, type="ValueError", message="m", threads=()
    )
    yield codec.encode(record)
    frame = {"func": "f", "file": "/x/train.py", "lineno": 2}
    yield codec.encode({"calls": [{"code": 1, "message": "m", "frames": [frame]}]})


_CARD = codec.encode(
    Card(
        pid=1, start_time=2, boot_id="b", pid_namespace=3, uid=0, host="h", command=("python", "x"),
        executable="/p", python="3.11.0", version="1", started_ns=4, rank=None, local_rank=0,
        world_size=8, problems=("one",),
    )
)  # fmt: skip

TARGETS: tuple[Target, ...] = (
    Target("header", read_header, tuple(_header_seeds())),
    Target("rows", read_rows, tuple(_row_seeds())),
    Target("names", read_names, (b"", encode_names(["a", "transformer.h.3.attn"]))),
    Target("card", read_card, (_CARD,)),
    Target("wire", read_wire, tuple(_wire_seeds())),
    Target("action", read_action, (b'{"checkpoint":{"path":"x","force":true}}', b'{"cleanup":{}}')),
    Target(
        "head",
        read_head,
        (b"GET /v1/ping HTTP/1.1\r\n\r\n", b"127.0.0.1:4321", b"Bearer " + b"f" * 64),
    ),
    Target("crash", read_crash, tuple(_crash_seeds())),
    Target("error file", read_error_file, (_ERROR_FILE,)),
    Target("launcher log", read_launcher_log, (_LAUNCHER_LOG,)),
)
