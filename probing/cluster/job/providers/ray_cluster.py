"""The nodes of a Ray cluster.

Rules of this file: `ray` is used where it is installed beside the command, and nowhere required. It
is loaded in a process of its own, which ends with the answer: a process that has loaded it has
threads which outlive no fork, as that of the SQL worker, and writes to the terminal.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ....errors import Unreachable
from .addresses import with_port

_ANSWER_S = 30.0
_ASK = """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import json
try:
    import ray
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    keys = ("Alive", "NodeManagerAddress")
    answer = {"nodes": [{key: node.get(key) for key in keys} for node in ray.nodes()]}
except Exception as error:
    answer = {"error": f"{error}" or type(error).__name__}
print("\\n" + json.dumps(answer), flush=True)
"""


def ray_hosts(address: str) -> tuple[str, ...]:
    """The addresses of node servers on the live nodes of a cluster.

    Args:
        address: Where the cluster is; empty for the one that this machine belongs to.

    Raises:
        Unreachable: Ray is not installed here, or there is no such cluster.
    """
    if importlib.util.find_spec("ray") is None:
        raise Unreachable(
            "ray is not installed beside this command, so its nodes cannot be listed.",
            help="Install ray in the same environment, or name the hosts in a file: `-t @FILE`.",
        )
    argv = [sys.executable, "-c", _ASK, address or "auto"]
    env = os.environ | {"PROBING": "0"}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, env=env, timeout=_ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise _unreachable(f"nothing answers within {_ANSWER_S:g} s") from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise _unreachable(f"ray has ended with exit code {done.returncode}") from None
    if "error" in answer:
        raise _unreachable(answer["error"].splitlines()[0].rstrip("."))
    return addresses_of(answer["nodes"])


def _unreachable(why: str) -> Unreachable:
    """That a cluster cannot be asked."""
    return Unreachable(
        f"the Ray cluster cannot be asked: {why}.",
        help="`ray:HOST:PORT` names its head, as `ray status` does; `-t @FILE` names the hosts.",
    )


def addresses_of(nodes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The addresses of those of Ray's nodes that are alive."""
    alive = (node for node in nodes if node.get("Alive"))
    return tuple(with_port(str(node["NodeManagerAddress"])) for node in alive)
