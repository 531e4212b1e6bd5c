"""Variables that are called as settings are, and are none: they are told, and change nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.targets import Target

pytestmark = pytest.mark.anypython


def test_a_misspelt_setting_is_told(program: Callable[..., Target]) -> None:
    """Once on stderr, with the nearest name, and as long as the process runs by two commands."""
    target = program("idle", PROBING="all", PROBING_OVERHAED="3", PROBING_COLOUR="red")
    target.wait_for_output("ready")
    target.wait_for_agent()
    near = "PROBING_OVERHAED is set, and is no setting: it changes nothing; the nearest is"
    none = "PROBING_COLOUR is set, and is no setting: it changes nothing; `probing config` lists"
    lines = [line for line in target.output.splitlines() if line != "ready"]
    assert lines == [f"probing: {none} them", f"probing: {near} PROBING_OVERHEAD"]
    for command in ("status", "config"):
        shown = target.run(str(target.pid), command).stdout
        assert f"problem: {near} PROBING_OVERHEAD\n" in shown
        assert f"problem: {none} them\n" in shown


def test_where_nothing_can_listen_is_told(program: Callable[..., Target]) -> None:
    """On stderr, and the agent is there without a listener."""
    target = program("idle", PROBING="all", PROBING_LISTEN="foo")
    target.wait_for_output("ready")
    target.wait_for_agent()
    assert "probing: no TCP listener: PROBING_LISTEN=foo is not host:port\n" in target.output


def test_a_start_that_failed_is_told_by_who_asks(program: Callable[..., Target]) -> None:
    """Why, what to correct, and nothing of what the agent would have recorded."""
    target = program("idle", PROBING="all", PROBING_OVERHEAD="much")
    target.wait_for_output("ready")
    target.wait_for_agent()
    why = "the agent did not start: setting PROBING_OVERHEAD: 'much' is not a number"
    advice = "nothing is recorded: correct or unset PROBING_OVERHEAD, and start the script again"
    assert f"probing: {why}; {advice}\n" in target.output
    shown = " ".join(target.run(str(target.pid), "status").stdout.split())
    assert shown.endswith(f"problem: {why}; nothing is recorded")
    assert "training step" not in shown
    refused = target.run(str(target.pid), "eval", "1")
    assert refused.returncode == 3
    assert f"is alive, but {why}.\n" in refused.stderr


def test_one_rank_of_a_machine_tells_of_a_misspelt_setting(program: Callable[..., Target]) -> None:
    """All have the same environment: the others tell it only when they are asked."""
    target = program("idle", PROBING="all", PROBING_HOOME="/x", RANK="1", LOCAL_RANK="1")
    target.wait_for_output("ready")
    target.wait_for_agent()
    assert target.output == "ready\n"
    assert "the nearest is PROBING_HOME" in target.run(str(target.pid), "status").stdout
