"""By which names a listener may be asked."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from probing.errors import BadHost
from probing.server.access.auth import check_host

pytestmark = pytest.mark.anypython

NAME = socket.gethostname()


@pytest.mark.parametrize(
    ("listen", "host", "is_served"),
    [
        ("https://0.0.0.0:443", NAME, True),
        ("https://0.0.0.0:443", f"{NAME}:443", True),
        ("https://[::]:443", "[::1]", True),
        ("https://gpu01:443", "10.0.0.5", False),
        ("127.0.0.1:80", "localhost", True),
        ("127.0.0.1:80", "evil.test", False),
        ("127.0.0.1:443", "127.0.0.1", False),
        ("https://127.0.0.1:80", "127.0.0.1", False),
        ("127.0.0.1:8080", "127.0.0.1", False),
        ("127.0.0.1:80", "", False),
        (None, "", False),
    ],
)
def test_clients_leave_out_the_usual_port(listen: str | None, host: str, is_served: bool) -> None:
    """80 without TLS and 443 with it: there a name alone is the listener's, and nowhere else."""
    served: Any = SimpleNamespace(listen=listen, settings=SimpleNamespace(hosts=""))
    if is_served:
        check_host([host], served, ("10.0.0.5", 443))
    else:
        with pytest.raises(BadHost):
            check_host([host], served, ("10.0.0.5", 443))
