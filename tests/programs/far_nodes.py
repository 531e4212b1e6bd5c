"""Stands for any number of node servers that are far away, each at an address of 127.0.0.0/8.

Arguments: the round trip in seconds, and how long a machine works on a statement. A request is
answered two round trips after it has come, one of them for the connection. Nobody is behind a
machine: one that hands a question on answers for the others, too, after as long as asking them
would take at least, and its own processor time is not counted. Prints its port, and on `GET /costs`
tells what it was asked and has sent.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import math
import sys
from typing import Any

import pyarrow as pa

from probing.messages import common as wire
from probing.messages.job import MembersAnswer, NodeMember
from probing.messages.stacks import Backtrace, Frame, ThreadStack
from tests.harness.fake_rows import answer, arrow_bytes

TRIP_S, WORK_S = float(sys.argv[1]), float(sys.argv[2])
RANKS_EACH = 8
FAN_OUT = 32
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


def handed_on_s(others: int, work_s: float, own_s: float) -> float:
    """How long a machine takes that asks so many others, in groups of which it asks the first.

    Args:
        work_s: Before it can ask them.
        own_s: For its own ranks, meanwhile.
    """
    if not others:
        return 2 * TRIP_S + work_s + own_s
    deeper = handed_on_s(math.ceil(others / FAN_OUT) - 1, work_s, own_s)
    return 2 * TRIP_S + work_s + max(own_s, 2 * TRIP_S + deeper)


def union(body: dict[str, Any]) -> bytes:
    """The rows of a machine, or of a group of them."""
    own = body.get("own", body)
    rows = pa.ipc.open_stream(answer(own["sql"])[0]).read_all()

    def told(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"key": m["key"], "state": "answered", "seconds": 0.01} for m in asked]

    account: dict[str, Any] = {"members": told(own["members"])}
    if own is not body:
        nodes = [{"url": n["node"]["url"], "members": told(n["members"])} for n in body["nodes"]]
        account = {"nodes": [{"url": "", **account}, *nodes]}
    key = b"probing.members" if own is body else b"probing.nodes"
    return arrow_bytes(rows.replace_schema_metadata({key: json.dumps(account).encode()}))


def collect(body: dict[str, Any], machine: int) -> bytes:
    """The answers of the processes of a machine, or of a group of them."""

    def told(keys: list[str], url: str) -> dict[str, Any]:
        given = []
        for index, reading in enumerate(body["readings"]):
            if reading["route"] == "members":
                number = machine if not url else machine_of(url.rpartition("/")[2].split(":")[0])
                given.append({"key": "", "reading": index, "body": in_text(members(number))})
            given += [{"key": k, "reading": index, "body": in_text(stacks())} for k in keys]
        return {"url": url, "answers": given}

    nodes = [told(n.get("keys", []), n["node"]["url"]) for n in body.get("nodes", [])]
    return json.dumps({"nodes": [told(body["keys"], ""), *nodes]}).encode()


@functools.lru_cache(5000)
def in_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def machine_of(host: str) -> int:
    """The number of a machine, by its address."""
    _, _, third, fourth = map(int, host.split("."))
    return third * 250 + fourth - 1


def answered(method: str, path: str, body: bytes, machine: int) -> tuple[bytes, float]:
    """An answer, and after how long it goes out."""
    if path == "/costs":
        return json.dumps(COSTS).encode(), 0.0
    if path.startswith("/v1/members"):
        return members(machine), 2 * TRIP_S
    if path.startswith("/v1/union"):
        asked = json.loads(body)
        return union(asked), handed_on_s(len(asked.get("nodes", ())), WORK_S, 0.0)
    if path == "/v1/collect":
        asked = json.loads(body)
        return collect(asked, machine), handed_on_s(len(asked["nodes"]), 0.0, 0.0)
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
        method, path, _ = head.split(" ", 2)
        length = next(
            (int(h[15:]) for h in head.split("\r\n") if h.lower().startswith("content-length")), 0
        )
        body = await reader.readexactly(length)
        machine = machine_of(writer.get_extra_info("sockname")[0])
        data, wait_s = answered(method, path, body, machine)
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
