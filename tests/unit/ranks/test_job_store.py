"""The store of a torchrun job, spoken to without torch."""

from __future__ import annotations

import importlib
import socket
import threading
from collections.abc import Iterator

import pytest

from probing.cluster.job.plans import plan_of
from probing.cluster.job.providers.job_store import register_in_store, store_hosts
from probing.cluster.torch_store import TorchStore
from probing.errors import BadEndpoint, Unreachable


@pytest.fixture
def stranger() -> Iterator[int]:
    """The port of a server that answers something else."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


@pytest.mark.torch
@pytest.mark.parametrize("use_libuv", [True, False])
def test_torchs_own_store(use_libuv: bool) -> None:
    """Both kinds of torch's server take a registration and give it back; torch reads it, too."""
    theirs = importlib.import_module("torch.distributed").TCPStore(
        "127.0.0.1", 0, None, is_master=True, use_libuv=use_libuv
    )
    where = f"127.0.0.1:{theirs.port}"
    with pytest.raises(Unreachable, match="no node server is registered"):
        store_hosts(where, timeout_s=10)
    register_in_store("127.0.0.1", theirs.port, attempt=0, listen="old:1")
    register_in_store("127.0.0.1", theirs.port, attempt=1, listen="a:1")
    register_in_store("127.0.0.1", theirs.port, attempt=1, listen="b:2")
    assert plan_of(f"store:{where}", {}).told == ("a:1", "b:2")
    assert theirs.get("probing/1/node/2") == b"b:2"
    theirs.set("theirs", b"x")
    with TorchStore("127.0.0.1", theirs.port, timeout_s=10) as ours:
        assert ours.get("theirs") == b"x"
        assert ours.get("absent") is None


@pytest.mark.anypython
def test_what_is_no_store_is_said_in_a_sentence(stranger: int) -> None:
    """Another server, nobody and a bad address each give one clear error."""
    with pytest.raises(Unreachable, match="no TCPStore"):
        store_hosts(f"127.0.0.1:{stranger}", timeout_s=10)
    with pytest.raises(Unreachable, match="cannot be asked"):
        store_hosts("127.0.0.1:1", timeout_s=10)
    with pytest.raises(BadEndpoint):
        store_hosts("nothing", timeout_s=10)
