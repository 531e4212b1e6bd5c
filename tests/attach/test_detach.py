"""What is left of the agent when it has been asked to go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from probing.messages import common as wire
from probing.reach import transport
from probing.reach.address import Address
from probing.rundir.folders import RunDirectory
from tests.harness.targets import Target, wait_until

WAYS = (
    "asked_by_http",
    "with_the_server_new",
    "again_and_again",
    "from_a_device",
    "keeping_the_record",
    "in_a_forward",
    "under_another_wrapper",
    "under_another_loader",
    "in_a_dataset",
    "during_an_eval",
    "between_hooks_of_the_user",
    "used_by_the_program",
)


@pytest.mark.torch
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left(way: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The process is as it was before it was attached to, whichever way the agent went."""
    import sys

    from tests.harness.targets import program_path

    cwd = tmp_path_factory.mktemp(way)
    target = Target([sys.executable, str(program_path("leaving")), way], cwd / "home", cwd)
    try:
        assert target.process.wait(120) == 0, target.output
        assert "done" in target.output
    finally:
        target.reap()


@pytest.mark.torch
def test_an_agent_that_was_there_from_the_start_goes_too(program: Callable[..., Target]) -> None:
    """PROBING=1 brought it; after it has left, no thread, finder, wrapper or folder is there."""
    target = program("leaving", "started_by_itself", PROBING="1")
    assert target.process.wait(120) == 0, target.output


@pytest.mark.torch
def test_the_training_goes_on_and_its_record_can_be_kept(
    fresh_training: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client gets its answer although the server goes; the record answers SQL afterwards."""
    folder = fresh_training.folder
    address = Address(path=folder.socket)
    body = wire.DetachRequest(keep_record=True)
    data = transport.ask(address, "detach", body=body, timeout_s=30)
    answer = wire.decode(wire.Detached, data)
    assert answer.pid == fresh_training.pid
    assert answer.kept == str(folder.path)
    wait_until(lambda: not folder.socket.exists(), "the agent to leave")
    printed = len(fresh_training.output)
    wait_until(lambda: len(fresh_training.output) > printed + 100, "the training to go on")
    monkeypatch.setenv("PROBING_HOME", str(fresh_training.home))
    rows = probing.connect(str(folder.path)).query("SELECT max(step) AS n FROM python.steps")
    assert rows.to_pylist()[0]["n"] >= 3


@pytest.mark.anypython
def test_a_process_without_torch_is_left_too(program: Callable[..., Target]) -> None:
    """Nothing is needed of torch to leave; the folder goes, and the process stays."""
    target = program("idle", PROBING="all")
    target.wait_for_agent()
    address = Address(path=target.folder.socket)
    data = transport.ask(address, "detach", body=wire.DetachRequest(), timeout_s=30)
    assert wire.decode(wire.Detached, data).kept is None
    wait_until(lambda: not RunDirectory(target.home).folders(), "the folder to go")
    assert target.process.poll() is None
