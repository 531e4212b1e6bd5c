"""What a process ran in is kept beside its record, and answers after its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import probing
from probing.errors import ProcessEnded
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.torch

SECRETS = ("zYx-argument", "zYx-variable", "zYx-login")
GIVEN = (*("--steps", "40", "--batch", "16", "--seed", "7"), "--api-token", SECRETS[0])


def environment_of(target: Target, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The rows of python.environment, by whichever way they are to be had."""
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    rows = probing.connect(target.pid).query("SELECT * FROM python.environment").to_pylist()
    assert rows
    return rows


def test_it_answers_after_the_end(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a training that has ended, all that it was set up with can still be asked."""
    target = program(  # no variable that torch reads as it is imported: it is imported already
        "compared", *GIVEN, NCCL_SECRET=SECRETS[1], TRITON_CACHE_DIR=f"s3://me:{SECRETS[2]}@x"
    )
    assert target.process.wait(DEADLINE_S) == 0, target.output
    rows = environment_of(target, monkeypatch)
    values = {(row["kind"], row["name"]): row["value"] for row in rows}
    assert values["argument", "--batch"] == "16"
    assert values["configuration", "loader 0.batch_size"] == "16"
    assert values["configuration", "loader 0.num_workers"] == "0"
    assert values["configuration", "optimizer.lr"] == "0.05"
    assert values["configuration", "model.dtype"] == "float32"
    assert values["torch", "num_threads"] == "1"
    assert values["seed", "torch.initial_seed"] == "7"
    assert values["version", "torch"] is not None
    assert values["place", "cpus"] is not None
    names = {name for kind, name in values if kind == "code"}
    assert any(name.endswith("compared.py") for name in names), names
    assert {row["name"] for row in rows if row["is_secret"]} >= {"--api-token", "NCCL_SECRET"}
    kept = target.folder.environment.read_text()
    assert not [secret for secret in SECRETS if secret in kept]
    done = target.run(
        str(target.pid), "query", "--format=jsonl", "SELECT count(*) FROM python.environment"
    )
    assert done.returncode == 0
    assert "as it was kept at" in done.stderr


def test_it_is_kept_of_one_that_is_killed(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the run folder while the training runs, and what a live one says is the same."""
    target = program("compared", "--steps", "1000000", "--batch", "16")
    target.wait_for_step(3)

    def is_kept() -> bool:
        path = target.folder.environment
        return path.exists() and "optimizer.lr" in path.read_text()

    wait_until(is_kept, "the kept environment")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    live = probing.connect(target.pid).live("environment").dicts()
    target.kill()
    kept = probing.connect(target.pid).live("environment").dicts()
    assert [row for row in live if row["kind"] in {"configuration", "torch", "argument"}] == [
        row for row in kept if row["kind"] in {"configuration", "torch", "argument"}
    ]


def test_it_goes_on_being_kept_once_somebody_has_asked(program: Callable[..., Target]) -> None:
    """The server, which then has the agent's thread, keeps it, too."""
    target = program("compared", "--steps", "1000000")
    target.wait_for_agent()
    assert target.run(str(target.pid), "eval", "1", "--now").returncode == 0

    def is_kept() -> bool:
        path = target.folder.environment
        return path.exists() and "loader 0.batch_size" in path.read_text()

    wait_until(is_kept, "the kept environment")


DAMAGED = (
    *("", "{", "[]", '{"table":"steps","columns":[],"rows":[]}'),
    '{"table":"environment","columns":["kind"],"rows":[["a","b"]]}',
)


def test_a_damaged_copy_is_as_good_as_none(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks is told that the process has ended, and nothing else goes wrong."""
    target = program("compared", "--steps", "3")
    assert target.process.wait(DEADLINE_S) == 0, target.output
    assert json.loads(target.folder.environment.read_text())["table"] == "environment"
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    for text in DAMAGED:
        target.folder.environment.write_text(text)
        with pytest.raises(ProcessEnded):
            probing.connect(target.pid).live("environment")
