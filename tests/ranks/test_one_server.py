"""A node server without the extra `metrics`, and a second one that is wanted otherwise."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.messages import common as wire
from probing.rundir.folders import RunDirectory
from probing.rundir.node_card import read_node, read_token_path
from tests.harness.targets import DEADLINE_S, Target

pytestmark = pytest.mark.anypython

WITHOUT = """
import sys
sys.modules["prometheus_client"] = None  # as where it is not installed
from probing.cluster.node.__main__ import main
sys.exit(main(["--listen", "127.0.0.1:0"]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One whose Python has no `prometheus_client`."""
    folder = tmp_path_factory.mktemp("server")
    target = Target([sys.executable, "-c", WITHOUT], folder / "home", folder, PROBING_TOKEN="t1")
    target.wait_for_output("listening on")
    yield target
    target.reap()


def test_what_scrapes_need_is_said_at_the_start(server: Target) -> None:
    """In one line, and again to who scrapes; quoted, as some shells take brackets as a pattern."""
    server.wait_for_output("501")
    way_out = "`pip install 'probing-agent[metrics]'`"
    (line,) = [line for line in server.output.splitlines() if "pip" in line]
    assert line == f"/metrics needs {way_out}, and answers 501 until then."
    card = read_node(RunDirectory(server.home))
    assert card is not None
    token = read_token_path(RunDirectory(server.home)).read_text()
    connection = http.client.HTTPConnection(card.listen, timeout=DEADLINE_S)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    assert (response.status, wire.decode_error(response.read()).help) == (501, way_out)
    connection.close()


def serve(server: Target, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Want another one of the same run directory, which is refused."""
    done = server.run("serve", *words, timeout_s=DEADLINE_S, **extra)
    card = read_node(RunDirectory(server.home))
    assert card is not None
    assert done.returncode == 2
    which = f"runs already (process {server.pid}, at {card.listen})."
    assert done.stderr.startswith(f"error: a node server of {server.home} {which}")
    return done


def test_what_the_other_one_has_is_not_told(server: Target, tmp_path: Path) -> None:
    """It is used as it is: with any port, with its own token."""
    token = tmp_path / "token"
    token.write_text("t1\n")
    for words in ((), ("--listen", "127.0.0.1:0", "--token-file", str(token))):
        done = serve(server, *words)
        assert "not what is given" not in done.stderr
        assert done.stderr.splitlines()[1] == f"Use it, or end it first: kill {server.pid}."


def test_what_the_other_one_has_not_is_told(server: Target, tmp_path: Path) -> None:
    """By the names that it was given by, and no secret."""
    token = tmp_path / "token"
    token.write_text("a secret\n")
    words = ("--listen", "127.0.0.1:1", "--token-file", str(token), "--allow-eval")
    done = serve(server, *words, PROBING_READ_TOKEN="another", PROBING_OTEL="1")
    assert "secret" not in done.stderr
    given = "--listen 127.0.0.1:1, --token-file, PROBING_READ_TOKEN, --allow-eval, PROBING_OTEL"
    assert f"It has not what is given here: {given}." in done.stderr
    assert f"kill {server.pid}" in done.stderr.splitlines()[1]
    done = serve(server, PROBING_TOKEN="another", PROBING_ALLOW_EVAL="1")
    assert "given here: PROBING_TOKEN, PROBING_ALLOW_EVAL." in done.stderr


def test_a_certificate_that_cannot_be_read_is_told_at_once(server: Target, tmp_path: Path) -> None:
    """Not once the other server has been ended."""
    done = server.run("serve", "--tls-cert", str(tmp_path / "none.pem"))
    assert done.returncode == 2
    assert "none.pem: No such file or directory" in done.stderr
