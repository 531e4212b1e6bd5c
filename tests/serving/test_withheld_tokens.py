"""Tokens are given to the agent and to nobody whom the training starts but its ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import probing
from probing.linux import process
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.rundir.node_card import read_node, read_token, token_path
from tests.harness.targets import clean_env, program_path, start_program, wait_until

pytestmark = pytest.mark.anypython

TOKEN, READ_TOKEN = "a-secret-of-all", "a-secret-of-readers"
GIVEN = {"PROBING_TOKEN": TOKEN, "PROBING_READ_TOKEN": READ_TOKEN}


def folder_of(home: Path, pid: int) -> ProcessFolder | None:
    """The run folder of a process, once it has a card."""
    folders = (folder for folder in RunDirectory(home).folders() if folder.pid == pid)
    return next((folder for folder in folders if folder.read_card()), None)


def test_workers_and_commands_have_no_token_and_ranks_do(tmp_path: Path) -> None:
    """Neither their environment nor what the kernel shows of it has one; a rank has both."""
    home = tmp_path / "home"
    target = start_program(
        "handing_down", home=home, cwd=tmp_path, PROBING="all", PROBING_LISTEN="127.0.0.1:0",
        **GIVEN,
    )  # fmt: skip
    try:
        target.wait_for_output("ready")
        found, ranks = map(json.loads, target.output.splitlines()[:2])
        assert list(found) == ["own", "command", "fork", "spawn", "forkserver"]
        assert not any(found.values())
        for pid in (target.pid, *ranks.values()):
            folder = wait_until(partial(folder_of, home, pid), f"the agent of {pid}")
            card = folder.read_card()
            assert card is not None
            assert card.problems == ()
            for token in GIVEN.values():
                assert probing.connect(f"http://{card.listen}", token=token).status().pid == pid
        (tmp_path / "stop").touch()
        target.wait_for_output("stopped with")
        assert f"stopped with {json.dumps(sorted(GIVEN.values()))}" in target.output
    finally:
        target.reap()
        for folder in RunDirectory(home).folders():
            if folder.is_alive():
                os.kill(folder.pid, 9)


def test_the_node_server_has_the_token_of_the_job(tmp_path: Path) -> None:
    """An agent that has taken the token out of its environment hands it to the node server."""
    home = tmp_path / "home"
    env = clean_env(
        home, PROBING="all", PROBING_NODE="1", PROBING_NODE_LISTEN="127.0.0.1:0",
        PROBING_NODE_IDLE_S="0.5", **GIVEN,
    )  # fmt: skip
    argv = [sys.executable, "-m", "probing._run", str(program_path("idle"))]
    with subprocess.Popen(argv, env=env, cwd=tmp_path) as job:
        try:
            card = wait_until(lambda: read_node(RunDirectory(home)), "a node server")
            assert read_token(token_path(RunDirectory(home))) == TOKEN
            assert TOKEN not in str(process.environment(job.pid))
        finally:
            job.kill()
    wait_until(lambda: not process.is_alive(card.pid, card.start_time), "its end")
