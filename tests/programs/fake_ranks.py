"""Serves any number of ranks that do not exist, as a node server does, by real SQL over real rows.

Arguments: how many ranks, then `RANK=FAULT` for those that have one: `late` answers after a minute,
`broken` ends in the middle of its answer, `cut` says that its limits have cut it, `old` knows
neither the column `loss` nor the table torch_trace, `wrong` answers with what is no Arrow.
With the argument `node` it stands for any number of node servers, too, which answer for all ranks
of their machine, and of others; as there is nobody behind them, nobody is asked. Prints its port,
and on `GET /costs` tells the requests and connections it has had.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa

from probing.errors import NoSuchRoute, ProbingError
from probing.messages import common as wire, job as job_wire, tree as tree_wire, union as union_wire
from probing.ring.arrow_tables import schema_of
from probing.sql.engine import Engine
from probing.tables import STEPS, TORCH_TRACE, Table

RANKS = int(sys.argv[1])
IS_NODE = "node" in sys.argv[2:]
FAULTS = dict(word.split("=") for word in sys.argv[2:] if "=" in word)
STEPS_EACH = 20
COSTS = {"connections": 0, "requests": 0, "sent": 0}


class Rows:
    """A table in memory."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        rows = [
            {
                "step": i,
                "loss": 1.0 / (i + 1),
                "module": f"m{i % 4}",
                "duration_ns": i * 10,
                "seq": i,
            }
            for i in range(STEPS_EACH)
        ]
        schema = schema_of(self.table)
        kept = [{n: v for n, v in row.items() if n in schema.names} for row in rows]
        return pa.Table.from_pylist(kept, schema=schema)


@functools.lru_cache(1000)
def answer(sql: str, *, is_old: bool) -> tuple[bytes, bool]:
    """The rows of a statement, or its error."""
    old = STEPS._replace(columns=tuple(c for c in STEPS.columns if c.name != "loss"))
    tables = [old] if is_old else [STEPS, TORCH_TRACE]
    try:
        with Engine([Rows(table) for table in tables]).run(sql, timeout_s=60) as found:
            sink = pa.BufferOutputStream()
            rows = found.to_arrow()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            return sink.getvalue().to_pybytes(), True
    except ProbingError as error:
        return wire.encode_error(error), False


def machines_answer(body: bytes, *, is_tree: bool) -> bytes:
    """What a machine gives for all of its ranks, or a leader for those of its group.

    Parts of aggregates by keys that all ranks have are as many for one as for all.
    """
    tree = wire.decode(tree_wire.TreeRequest, body) if is_tree else None
    own = tree.own if tree is not None else wire.decode(union_wire.UnionRequest, body)
    data, _ = answer(own.sql, is_old=False)
    rows = pa.ipc.open_stream(data).read_all()
    if tree is not None:
        asked = [("", own.members), *((n.node.url, n.members) for n in tree.nodes)]
        told = tree_wire.NodeAccounts(
            nodes=tuple(
                tree_wire.NodeAccount(url=url, members=answered(those)) for url, those in asked
            )
        )
        metadata = {tree_wire.NODES_KEY: wire.encode(told)}
    else:
        found = union_wire.UnionOutcomes(members=answered(own.members))
        metadata = {union_wire.MEMBERS_KEY: wire.encode(found)}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema.with_metadata(metadata)) as writer:
        writer.write_table(rows.replace_schema_metadata(metadata))
    return sink.getvalue().to_pybytes()


def answered(
    members: tuple[union_wire.UnionMember, ...],
) -> tuple[union_wire.UnionOutcome, ...]:
    """The account of members that have all answered."""
    return tuple(
        union_wire.UnionOutcome(key=m.key, state="answered", seconds=0.01) for m in members
    )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        COSTS["connections"] += 1
        super().setup()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path == "/costs":
            self.send(json.dumps(COSTS).encode())
        elif self.path.startswith("/v1/members"):
            members = tuple(
                job_wire.NodeMember(
                    key=f"{1000 + rank}-1", rank=rank, local_rank=rank, world_size=RANKS,
                    job="fake", attempt=0, pid=1000 + rank, host=f"host{rank // 8}",
                    started_ns=1, is_alive=True,
                )
                for rank in range(RANKS)
            )  # fmt: skip
            found = job_wire.MembersAnswer(host="fake", pid=1, version="0", members=members)
            self.send(wire.encode(found))
        else:
            status = wire.TableStatus(name="steps", kind="recorded", rows=STEPS_EACH)
            trace = wire.TableStatus(name="torch_trace", kind="recorded", rows=STEPS_EACH)
            self.send(wire.encode(wire.TablesAnswer(tables=(status, trace))))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if IS_NODE and self.path.startswith("/v1/union"):
            self.send(machines_answer(body, is_tree=self.path.endswith("/tree")))
            return
        if not self.path.endswith("/query"):
            self.send(wire.encode_error(NoSuchRoute("POST", self.path)), 404)
            return
        rank = int(self.path.split("/")[3].partition("-")[0]) - 1000
        fault = FAULTS.get(str(rank))
        if fault == "late":
            time.sleep(60)
        data, is_good = answer(wire.decode(wire.QueryRequest, body).sql, is_old=fault == "old")
        if fault == "cut":
            rows = pa.ipc.open_stream(data).read_all()
            sink = pa.BufferOutputStream()
            cut = rows.schema.with_metadata({wire.TRUNCATED_KEY: b"cut after 0 rows"})
            with pa.ipc.new_stream(sink, cut) as writer:
                writer.write_table(rows.replace_schema_metadata(cut.metadata))
            data = sink.getvalue().to_pybytes()
        if fault == "wrong":
            data = b"\0" * 100
        self.send(data, 200 if is_good else 400, is_whole=fault != "broken")

    def send(self, data: bytes, status: int = 200, *, is_whole: bool = True) -> None:
        COSTS["requests"] += 1
        COSTS["sent"] += len(data)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data if is_whole else data[: len(data) * 2 // 3])
        self.close_connection = True


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


if __name__ == "__main__":
    # Every address of 127.0.0.0/8 is this one, so that node servers have one each.
    server = Server(("0.0.0.0", 0), Handler)
    print(f"ready {server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    time.sleep(3600)
