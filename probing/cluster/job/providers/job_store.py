"""The node servers that are registered in the store of a torchrun job.

    probing/attempt              the newest attempt of any machine
    probing/<attempt>/nodes      how many node servers have registered in it
    probing/<attempt>/node/<i>   the address of one, from 1

torchrun counts restarts on each node by itself, and there only what has failed there: a machine
whose count is behind registers in the newest attempt all the same.

Rules of this file: one registration for each machine in an attempt, written by its node server and
never by a training process, so that no rank of the job ever waits for it.
"""

from __future__ import annotations

from ....errors import BadEndpoint, Unreachable
from ...torch_store import TorchStore
from .addresses import is_port

STORE_S = 2.0
_MOST_NODES = 32_768


def register_in_store(
    host: str, port: int, *, attempt: int, listen: str, registered: int | None = None
) -> int:
    """Leave the address of a node server in the newest attempt; returns which that is.

    Args:
        attempt: That of the machine's own processes.
        registered: In which attempt the address stands already; None for in none.

    Raises:
        Unreachable: The store does not answer.
    """
    with TorchStore(host, port, timeout_s=STORE_S) as store:
        known = _number(store.get("probing/attempt"))
        newest = max(attempt, known or 0)
        if newest != registered or known is None:  # None: the store is another one
            number = store.add(f"probing/{newest}/nodes", 1)
            store.set(f"probing/{newest}/node/{number}", listen.encode())
        if known != newest:  # also where another machine has written a lower one meanwhile
            store.set("probing/attempt", str(newest).encode())
    return newest


def store_hosts(word: str, *, timeout_s: float) -> tuple[str, ...]:
    """The addresses that are registered in the store at HOST:PORT.

    Args:
        timeout_s: How long the store may take for all of them.

    Raises:
        BadEndpoint: That is no address.
        Unreachable: The store does not answer, or nobody is registered in it.
    """
    host, _, port = word.rpartition(":")
    if not host or not is_port(port):
        raise BadEndpoint(f"store:{word}", "it must be store:HOST:PORT")
    with TorchStore(host.strip("[]"), int(port), timeout_s=timeout_s) as store:
        attempt = _number(store.get("probing/attempt"))
        count = None if attempt is None else _number(store.get(f"probing/{attempt}/nodes"))
        keys = (f"probing/{attempt}/node/{i + 1}" for i in range(min(count or 0, _MOST_NODES)))
        values = [store.get(key) for key in keys]
    found = dict.fromkeys(value.decode("utf-8", "replace") for value in values if value)
    if not found:
        raise Unreachable(
            f"no node server is registered in the store at {word}.",
            help="One registers by itself where it runs beside the job: `probing serve`.",
        )
    return tuple(found)


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() and len(value) < 10 else None
