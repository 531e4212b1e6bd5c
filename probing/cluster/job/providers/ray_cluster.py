"""The nodes of a Ray cluster.

Rules of this file: `ray` is used where it is installed beside the command, and nowhere required.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from ....errors import Unreachable
from .addresses import with_port


def ray_hosts(address: str) -> tuple[str, ...]:
    """The addresses of node servers on the live nodes of a cluster.

    Args:
        address: Where the cluster is; empty for the one that this machine belongs to.

    Raises:
        Unreachable: Ray is not installed here, or there is no such cluster.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise Unreachable(
            "ray is not installed beside this command, so its nodes cannot be listed.",
            help="Install ray in the same environment, or name the hosts in a file: `-t @FILE`.",
        ) from None
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
        return addresses_of(ray.nodes())
    except Exception as error:  # noqa: BLE001 - whatever ray raises means that it cannot be asked
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unreachable(f"the Ray cluster cannot be asked: {text}.") from None


def addresses_of(nodes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The addresses of those of Ray's nodes that are alive."""
    alive = (node for node in nodes if node.get("Alive"))
    return tuple(with_port(str(node["NodeManagerAddress"])) for node in alive)
