"""Stands for any number of node servers that are far away, each at an address of 127.0.0.0/8.

Arguments: the round trip in seconds, and how long a machine works on a statement. A request is
answered two round trips after it has come, one of them for the connection. Prints its port, and on
`GET /costs` tells what it was asked and has sent.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from typing import Any

import pyarrow as pa

from probing.messages import common as wire
from probing.messages.about.job import MembersAnswer, NodeMember
from probing.messages.about.stacks import Backtrace, Frame, ThreadStack
from probing.messages.about.union import MEMBERS_KEY
from tests.harness.fake_rows import answer, arrow_bytes

TRIP_S, WORK_S = float(sys.argv[1]), float(sys.argv[2])
RANKS_EACH = 8
COSTS = {"connections": 0, "sent": 0}


@functools.cache
def stacks() -> bytes:
    """Of a training with four threads."""
    frames = tuple(
        Frame(
            func=f"Module{depth}._call_impl",
            file=f"/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module_{depth}.py",
            lineno=1700 + depth,
            line="return self._call_impl(*args, **kwargs)",
        )
        for depth in range(25)
    )
    threads = tuple(
        ThreadStack(
            thread_id=n, name=f"Thread-{n}", is_main=n == 0, frames=frames[: 25 if n == 0 else 8]
        )
        for n in range(4)
    )
    return wire.encode(Backtrace(pid=1, source="agent", threads=threads))


def members(machine: int) -> bytes:
    """Of one machine."""
    found = tuple(
        NodeMember(
            key=f"{1000 + rank}-1", rank=rank, local_rank=rank % RANKS_EACH, world_size=None,
            job="far", attempt=0, pid=1000 + rank, host=f"host{machine}", started_ns=1,
            is_alive=True,
        )
        for rank in range(machine * RANKS_EACH, (machine + 1) * RANKS_EACH)
    )  # fmt: skip
    return wire.encode(MembersAnswer(host=f"host{machine}", pid=1, version="0", members=found))


def union(body: dict[str, Any]) -> bytes:
    """The rows of a machine."""
    rows = pa.ipc.open_stream(answer(body["sql"])[0]).read_all()
    told = [{"key": m["key"], "state": "answered", "seconds": 0.01} for m in body["members"]]
    account = json.dumps({"members": told}).encode()
    return arrow_bytes(rows.replace_schema_metadata({MEMBERS_KEY: account}))


def machine_of(host: str) -> int:
    """The number of a machine, by its address."""
    _, _, third, fourth = map(int, host.split("."))
    return third * 250 + fourth - 1


def answered(path: str, body: bytes, machine: int) -> tuple[bytes, float]:
    """An answer, and after how long it goes out."""
    if path == "/costs":
        return json.dumps(COSTS).encode(), 0.0
    if path.startswith("/v1/members"):
        return members(machine), 2 * TRIP_S
    if path.startswith("/v1/union"):
        return union(json.loads(body)), 2 * TRIP_S + WORK_S
    if path.endswith("/backtrace"):
        return stacks(), 2 * TRIP_S
    if path.endswith("/query"):
        return answer(json.loads(body)["sql"])[0], 2 * TRIP_S
    return b'{"pid": 1}', 2 * TRIP_S


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request."""
    COSTS["connections"] += 1
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ", 2)[1]
        length = next(
            (int(h[15:]) for h in head.split("\r\n") if h.lower().startswith("content-length")), 0
        )
        body = await reader.readexactly(length)
        machine = machine_of(writer.get_extra_info("sockname")[0])
        data, wait_s = answered(path, body, machine)
        await asyncio.sleep(wait_s)
        COSTS["sent"] += len(data)
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main() -> None:
    # Every address of 127.0.0.0/8 is this one, so that node servers have one each.
    server = await asyncio.start_server(serve, "0.0.0.0", 0, backlog=4096, limit=1 << 26)
    print(f"ready {server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
