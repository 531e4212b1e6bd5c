"""Serves any number of ranks that do not exist, as a node server does, by real SQL over real rows.

They tell who they are and where their threads are, too; findings are made of their rows.

Arguments: how many ranks, then `RANK=FAULT` for those that have one: `late` answers after a minute,
`broken` ends in the middle of its answer, `cut` says that its limits have cut it, `old` knows
neither the column `loss` nor the table torch_trace, `wrong` answers with what is no Arrow. With the
word `uneven` each has steps of its own length.
Prints its port, and on `GET /costs` tells the requests and connections it has had.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa

from probing.errors import NoSuchRoute
from probing.messages import common as wire
from probing.messages.about import job as job_wire
from tests.harness import fake_answers
from tests.harness.fake_rows import STEPS_EACH, answer, arrow_bytes

RANKS = int(sys.argv[1])
FAULTS = dict(word.split("=") for word in sys.argv[2:] if "=" in word)
COSTS = {"connections": 0, "requests": 0, "sent": 0}


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
        elif self.path.endswith("/backtrace"):
            self.send(wire.encode(fake_answers.backtrace(self.rank)))
        elif self.path.endswith("/status"):
            self.send(wire.encode(fake_answers.card(self.rank, RANKS)))
        else:
            status = wire.TableStatus(name="steps", kind="recorded", rows=STEPS_EACH)
            trace = wire.TableStatus(name="torch_trace", kind="recorded", rows=STEPS_EACH)
            self.send(wire.encode(wire.TablesAnswer(tables=(status, trace))))

    @property
    def rank(self) -> int:
        """Whose answer is asked for."""
        return int(self.path.split("/")[3].partition("-")[0]) - 1000

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.path.endswith("/query"):
            self.send(wire.encode_error(NoSuchRoute("POST", self.path)), 404)
            return
        rank = self.rank
        fault = FAULTS.get(str(rank))
        if fault == "late":
            time.sleep(60)
        data, is_good = answer(wire.decode(wire.QueryRequest, body).sql, is_old=fault == "old")
        if fault == "cut":
            rows = pa.ipc.open_stream(data).read_all()
            data = arrow_bytes(
                rows.replace_schema_metadata({wire.TRUNCATED_KEY: b"cut after 0 rows"})
            )
        if "uneven" in sys.argv and is_good:
            data = uneven(data, rank)
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


def uneven(data: bytes, rank: int) -> bytes:
    """The steps of an answer as those of one rank; any other answer as it is."""
    rows = pa.ipc.open_stream(data).read_all()
    took = 0.25 if fake_answers.is_slow(rank) else 0.1 + rank % 7 * 0.004
    own = {
        "duration": took, "data_wait_s": rank % 5 * 0.002, "gradient_sync_s": 0.25 - took,
        "allocated_bytes": (20 + rank % 8) << 30,
    }  # fmt: skip
    if not {"seq", "duration", "age_s"} <= set(rows.column_names):
        return data
    for name in own.keys() & set(rows.column_names):
        index = rows.column_names.index(name)
        values = pa.array([own[name]] * rows.num_rows, rows.schema.field(name).type)
        rows = rows.set_column(index, name, values)
    return arrow_bytes(rows)


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print(f"ready {server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    time.sleep(3600)
