"""Which addresses the agent listens on."""

from __future__ import annotations

import pytest

from probing.errors import NoPermission
from probing.server.sockets import bind_tcp
from probing.settings import Settings

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.1.2.3:0", "localhost:0", ":0"])
def test_addresses_of_this_machine_alone_are_listened_on(listen: str) -> None:
    """By number or by name, and without a host it is 127.0.0.1."""
    server, shown, _ = bind_tcp(Settings(listen=listen), 0)
    with server:
        assert server.getsockname()[0].startswith(("127.", "::1"))
        assert shown.endswith(f":{server.getsockname()[1]}")


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "[::1234]:0", "192.0.2.1:0"])
def test_addresses_that_others_reach_are_refused(listen: str) -> None:
    """Also one that only begins as that of this machine does."""
    with pytest.raises(NoPermission, match="which other machines reach"):
        bind_tcp(Settings(listen=listen), 0)


@pytest.mark.parametrize(
    ("port", "local_rank", "said"),
    [(65533, 6, "no port 65539, 65533 plus LOCAL_RANK 6"), (99741, 0, "no port 99741: the last")],
)
def test_a_port_that_there_is_not_is_no_other_port(port: int, local_rank: int, said: str) -> None:
    """The kernel takes the last 16 bits of it, which are somebody else's."""
    with pytest.raises(OSError, match=said):
        bind_tcp(Settings(listen=f"127.0.0.1:{port}"), local_rank)
