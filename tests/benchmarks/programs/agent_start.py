"""Starts the agent as the start-up hook does once torch is there; prints time and memory."""

import json
import os
import time

started = time.perf_counter()
import torch  # noqa: E402, F401

torch_ms = 1e3 * (time.perf_counter() - started)

from tests.benchmarks.memory import resident_kib  # noqa: E402

before = resident_kib()
os.environ["PROBING"] = "1"
started, cpu_started = time.perf_counter(), time.thread_time()
from probing import _boot  # noqa: E402

_boot.start()
ms, cpu_ms = 1e3 * (time.perf_counter() - started), 1e3 * (time.thread_time() - cpu_started)

# The agent's thread has done what it does at the start once it answers a ping.
import socket  # noqa: E402

from probing.agent import lifecycle  # noqa: E402

agent = lifecycle.current()
if agent is None:
    raise RuntimeError("the agent did not start")
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(str(agent.folder.socket))
    connection.sendall(b"GET /v1/ping HTTP/1.1\r\n\r\n")
    connection.recv(4096)
after = resident_kib()
kib = {kind: after[kind] - before[kind] for kind in before}
print(json.dumps({"ms": ms, "cpu_ms": cpu_ms, "torch_ms": torch_ms, "kib": kib}))
