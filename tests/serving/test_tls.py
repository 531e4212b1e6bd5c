"""TCP with a certificate: who is believed, what is refused, and that it holds nobody up."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.cluster.registration import as_reached
from probing.errors import BadSetting, ProbingError, Untrusted
from probing.reach.trust import read_fingerprint
from probing.server.certificate import load_certificate
from probing.server.sockets import bind_tcp
from probing.settings import Settings
from tests.harness.certificates import make_certificate
from tests.harness.targets import DEADLINE_S, Target, clean_env, start_program

pytestmark = pytest.mark.anypython


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "own")


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory, pair: tuple[str, str]) -> Iterator[Target]:
    """A process whose agent listens for other machines, with a certificate."""
    cwd = tmp_path_factory.mktemp("encrypted")
    target = start_program(
        "idle", home=cwd / "home", cwd=cwd, PROBING="all",
        PROBING_LISTEN="0.0.0.0:0", PROBING_TLS_CERT=pair[0], PROBING_TLS_KEY=pair[1],
    )  # fmt: skip
    target.wait_for_agent()
    yield target
    target.reap()


def port_of(target: Target) -> int:
    """The port that its agent listens on."""
    card = target.folder.read_card()
    assert card is not None
    assert card.problems == ()
    assert card.listen is not None
    assert card.listen.startswith("https://0.0.0.0:")
    return int(card.listen.rpartition(":")[2])


def fingerprint(cert: str) -> str:
    """As `openssl x509 -fingerprint -sha256` tells it."""
    der = ssl.PEM_cert_to_DER_cert(Path(cert).read_text())
    return hashlib.sha256(der).hexdigest().upper()


def test_whose_certificate_is_believed(
    encrypted: Target, pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the certificate or its fingerprint lets in; nothing or another one, nobody."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path))  # as on another machine
    port, token = port_of(encrypted), encrypted.folder.token.read_text()
    stranger, _ = make_certificate(tmp_path, "stranger")
    own, other = fingerprint(pair[0]), fingerprint(stranger)
    for endpoint, ca, pinned in (
        (f"https://localhost:{port}", pair[0], None),
        (f"localhost:{port}", pair[0], None),
        (f"127.0.0.1:{port}", None, own),
    ):
        there = probing.connect(endpoint, token=token, tls_ca=ca, tls_fingerprint=pinned)
        assert there.status().pid == encrypted.pid
    for endpoint, ca, pinned, reason in (
        (f"https://localhost:{port}", None, None, "self.signed"),
        (f"localhost:{port}", stranger, None, "self.signed"),
        (f"127.0.0.1:{port}", pair[0], None, "IP address mismatch"),
        (f"localhost:{port}", None, other, "its fingerprint is"),
    ):
        there = probing.connect(endpoint, token=token, tls_ca=ca, tls_fingerprint=pinned)
        with pytest.raises(Untrusted, match=reason):
            there.status()
    with pytest.raises(ProbingError, match="before an answer came"):
        probing.connect(f"http://localhost:{port}", token=token).status()


def test_the_same_user_needs_no_more_than_the_address(encrypted: Target) -> None:
    """On the process's own machine its run folder has token and fingerprint, whatever the name."""
    port = port_of(encrypted)
    for endpoint in (f"127.0.0.1:{port}", f"https://localhost:{port}"):
        done = encrypted.run(endpoint, "query", "SELECT 6 * 7 AS x", "--format", "csv")
        assert (done.returncode, done.stdout) == (0, "x\n42\n"), done.stderr


def test_the_options_of_the_command(
    encrypted: Target, pair: tuple[str, str], tmp_path: Path
) -> None:
    """--tls-ca and --tls-fingerprint stand before the command or after it; a wrong one is told."""
    token = encrypted.folder.read_token.read_text()
    endpoint = f"localhost:{port_of(encrypted)}"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return encrypted.run(*words, PROBING_HOME=str(tmp_path), PROBING_TOKEN=token)

    pinned = f"sha256:{fingerprint(pair[0])}"
    for done in (
        run("--tls-ca", pair[0], endpoint, "tables"),
        run("-t", endpoint, "--tls-fingerprint", pinned, "tables"),
    ):
        assert done.returncode == 0, done.stderr
    for option, value, code, told in (
        ("--tls-ca", "nowhere.pem", 2, "cannot read the certificates in nowhere.pem"),
        ("--tls-ca", pair[1], 2, "it holds no certificates"),
        ("--tls-fingerprint", "12:34", 2, "'12:34' is no SHA-256 fingerprint"),
        ("--tls-fingerprint", "0" * 64, 4, "is not trusted"),
    ):
        done = run(option, value, endpoint, "status")
        assert (done.returncode, told in done.stderr) == (code, True), done.stderr
        assert "Traceback" not in done.stderr


def test_who_is_slow_at_the_handshake_holds_up_nobody(encrypted: Target) -> None:
    """With connections that say nothing, or no TLS, the next client is answered all the same."""
    port = port_of(encrypted)
    silent = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(8)]
    try:
        silent[0].sendall(b"GET /v1/status HTTP/1.1\r\n\r\n")
        assert encrypted.run(f"127.0.0.1:{port}", "tables").returncode == 0
    finally:
        for connection in silent:
            connection.close()


def test_a_node_server_with_a_certificate(
    encrypted: Target, pair: tuple[str, str], tmp_path: Path
) -> None:
    """`probing serve` shows it, and all of its processes are asked through it."""
    argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0",
            "--tls-cert", pair[0], "--tls-key", pair[1]]  # fmt: skip
    node = Target(argv, encrypted.home, tmp_path)
    try:
        node.wait_for_output("listening on")
        found = re.search(r"listening on (https://\S+);", node.output)
        assert found is not None
        assert f"its certificate is sha256:{fingerprint(pair[0]).lower()}" in node.output
        words = ("--tls-fingerprint", fingerprint(pair[0]), "-t", found[1])
        answers = {
            "node.token": "code that comes over TCP is not run",
            "node.read_token": "may only read",
        }
        for name, told in answers.items():
            token = (node.home / name).read_text()
            away: Any = {"PROBING_HOME": str(tmp_path), "PROBING_TOKEN": token}
            done = node.run(
                *words,
                "--timeout",
                "100",
                "query",
                "SELECT pid FROM python.threads",
                input=None,
                **away,
            )
            assert (done.returncode, str(encrypted.pid) in done.stdout) == (0, True), done.stderr
            done = node.run(*words, "eval", "1", input=None, **away)
            assert (done.returncode, told in done.stderr) == (4, True), done.stderr
    finally:
        node.reap()


def test_a_certificate_that_cannot_be_shown_is_told(
    pair: tuple[str, str], tmp_path: Path, program: Callable[..., Target]
) -> None:
    """A missing file, no certificate, another's key or a locked one: one sentence, no TCP."""
    other = make_certificate(tmp_path, "other")
    locked = make_certificate(tmp_path, "locked", phrase="open sesame")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for cert, key, told in (
        ("/nowhere.pem", "", "No such file"),
        (str(empty), pair[1], r"PEM|NO_START_LINE|no certificate"),
        (pair[0], other[1], "KEY_VALUES_MISMATCH"),
        (locked[0], locked[1], "needs a pass phrase"),
        ("", pair[1], "needs PROBING_TLS_CERT"),
    ):
        with pytest.raises(BadSetting, match=told):
            bind_tcp(Settings(listen="127.0.0.1:0", tls_cert=cert, tls_key=key), 0)
    target = program("idle", PROBING="all", PROBING_LISTEN="127.0.0.1:0", PROBING_TLS_CERT="/no")
    target.wait_for_agent()
    card = target.folder.read_card()
    assert card is not None
    assert card.listen is None
    assert "PROBING_TLS_CERT: /no: No such file" in card.problems[0]


def test_a_certificate_and_its_key_may_be_one_file(pair: tuple[str, str], tmp_path: Path) -> None:
    """As many tools write them; the fingerprint is that of the first certificate."""
    both = tmp_path / "both.pem"
    both.write_text("".join(Path(path).read_text() for path in reversed(pair)))
    loaded = load_certificate(Settings(tls_cert=str(both)))
    assert loaded.fingerprint == read_fingerprint(f"sha256 Fingerprint={fingerprint(pair[0])}")


def test_an_address_as_others_reach_it() -> None:
    """What listens everywhere is registered by the machine's name, encrypted or not."""
    name = socket.gethostname()
    assert as_reached("https://0.0.0.0:9741") == f"https://{name}:9741"
    assert as_reached("[::]:9741") == f"{name}:9741"
    assert as_reached("https://node1:9741") == "https://node1:9741"


def test_without_a_certificate_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    """An agent that listens without one has not loaded `ssl` by the end of its start."""
    code = "import sys, probing; probing.start(listen='127.0.0.1:0'); print('ssl' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_env(tmp_path / "home"), capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("False\n", "")
