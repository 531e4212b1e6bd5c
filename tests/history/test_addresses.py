"""What names a place of runs: an address that is mistyped is no folder, and a server is named."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing import dbapi
from probing.cli.main import run
from probing.cli.render.errors import render_error
from probing.cluster.node.beside import Beside
from probing.errors import NotProbed, StoreTimedOut, StoreUnreachable, UsageError
from probing.gateway.__main__ import main as serve
from probing.history.query import source_of
from probing.history.stores.address import is_url, s3_endpoint
from probing.history.stores.objects import unreachable
from probing.history.stores.place import place_of
from probing.rundir.folders import RunDirectory
from probing.settings import Settings

MEANT = {
    "s3:/bucket/typo": "s3://bucket/typo",
    "s3//bucket/typo": "s3://bucket/typo",
    "s3:bucket": "s3://bucket",
    "s3;//bucket": "s3://bucket",
    "s3:///bucket/x": "s3://bucket/x",
    "S3://bucket": "s3://bucket",
    "s3a://bucket/x": "s3://bucket/x",
    "gs:/bucket": "gs://bucket",
    "gcs//bucket": "gs://bucket",
}
FOLDERS = ("runs", "./s3:/bucket", "/s3:/bucket", "s3/bucket", "s3", "runs//x", "a:b", "gs-1/x", "")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that takes whoever comes and says nothing, as one that is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for name, word in (("ENDPOINT_URL", address), ("REGION", "us-east-1")):
            monkeypatch.setenv(f"AWS_{name}", word)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "anybody")
        yield address


@pytest.mark.parametrize("typed", MEANT)
def test_what_was_meant_is_told(typed: str) -> None:
    """It is not taken for a folder of this machine, which would be filled."""
    with pytest.raises(UsageError) as caught:
        is_url(typed)
    assert (
        caught.value.message == f"{typed} is no place for a history. Did you mean {MEANT[typed]}?"
    )


@pytest.mark.parametrize("typed", ["s3:", "s3://", "s3://bucket?x", "node1:/runs", "hdfs://x/y"])
def test_what_is_like_an_address_is_refused(typed: str) -> None:
    """Nothing is suggested where that is not known."""
    with pytest.raises(UsageError, match=r"is no place for a history\.$"):
        is_url(typed)


def test_folders_are_folders() -> None:
    """Also one that is called as an address is, where it is named as a folder."""
    assert not any(map(is_url, FOLDERS))
    assert is_url("s3://bucket")


def test_whoever_takes_an_address_refuses_one_that_is_mistyped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2, and without making a folder."""
    monkeypatch.chdir(tmp_path)
    typed, question = "s3:/bucket/typo", "Did you mean s3://bucket/typo?"
    monkeypatch.setenv("PROBING_HISTORY", typed)
    settings = Settings.from_env({"PROBING_HISTORY": typed})
    for take in (
        lambda: source_of(typed),
        lambda: place_of(typed, {}),
        lambda: place_of("s3://bucket", {"PROBING_HISTORY_SPOOL": typed}),
        lambda: Beside(settings, RunDirectory(tmp_path), print),
    ):
        with pytest.raises(UsageError):
            take()
    with pytest.raises(dbapi.DatabaseError, match=typed):
        dbapi.connect(history=typed)
    for words in (
        ["1", "export"],
        ["1", "export", typed],
        ["-t", "all", "export", "--every", "600"],
        ["history", "compact"],
    ):
        assert run(words) == UsageError.exit_code
        assert question in capfd.readouterr().err
    for words in (["--history", typed], ["--history", typed, "--", "all"]):
        assert serve(words) == UsageError.exit_code
        assert question in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("named", ["127.0.0.1:5924", "http//127.0.0.1:5924", "http:/x", "http://"])
def test_a_server_is_named_with_its_scheme(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the sentence says which variable names it, and how; before anything is asked."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", named)
    with pytest.raises(UsageError, match=f"AWS_ENDPOINT_URL is '{named}', which does not begin"):
        place_of(f"s3://bucket/{named.replace('/', '_')}", {})
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://other")
    assert s3_endpoint() == "https://other"


def test_an_error_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the address that may be meant, where one without TLS is asked with it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:9000")
    words = str(unreachable("s3://bucket/x", "SSL connect error"))
    assert "the store s3://bucket/x at https://127.0.0.1:9000 cannot be asked: SSL" in words
    assert words.endswith("a server without TLS is asked by http://127.0.0.1:9000.")
    assert str(unreachable("gs://b", "no")) == "the store gs://b cannot be asked: no."


def test_a_store_that_hangs_is_waited_for_no_longer_than_the_limit(silent: str) -> None:
    """The sentence says which store, and at which server."""
    at = f"the store s3://silent/runs at {silent} has not answered within the limit of 0.2 s"
    with pytest.raises(dbapi.OperationalError, match=at):
        dbapi.connect(history="s3://silent/runs", timeout_s=0.2)
    assert (StoreTimedOut.exit_code, StoreUnreachable.exit_code) == (5, 3)


def test_the_folder_comes_before_the_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever gives it behind them is told so, and how many words are too few."""
    for words in (["diff", "10915", "10916"], ["show", "10915"]):
        assert run(["history", *words, str(tmp_path)]) == UsageError.exit_code
        told = "there is no history in 10915: there is no such folder, and the folder comes first."
        assert told in capfd.readouterr().err
    assert run(["history", "diff", "10915"]) == UsageError.exit_code
    assert "two runs are compared, but 1 was given." in capfd.readouterr().err


def test_a_process_is_named_once() -> None:
    """Where its own sentence names it, no other word stands before that."""
    told = render_error(NotProbed(10915), endpoint="process 10915")
    assert told.startswith("error: process 10915 is alive")
    assert render_error(NotProbed(1), endpoint="rank 3").startswith("error: rank 3: process 1 is")
