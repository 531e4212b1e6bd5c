"""The nodes of a Ray cluster, as a package named `ray` tells of them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probing.cluster.job.providers import ray_cluster
from probing.cluster.job.providers.ray_cluster import addresses_of, ray_hosts
from probing.errors import Unreachable

_NODES = [
    {"Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 2.0}},
    {"Alive": False, "NodeManagerAddress": "10.0.0.2"},
]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a package `ray` in front of all others, whose `init` is these lines."""

    def write(init: str) -> None:
        text = f"def init(address, **how):\n    {init}\n\ndef nodes():\n    return {_NODES}\n"
        (tmp_path / "ray.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return write


@pytest.mark.anypython
def test_live_nodes_are_asked() -> None:
    """At the usual port; those that are gone are left out."""
    assert addresses_of(_NODES) == ("10.0.0.1:9741",)


@pytest.mark.anypython
def test_ray_is_loaded_elsewhere(install: Callable[[str], None]) -> None:
    """Its threads and its words stay in a process of its own, and the nodes come from there."""
    install("print('connected to', address)")
    assert ray_hosts("") == ("10.0.0.1:9741",)
    assert "ray" not in sys.modules


@pytest.mark.anypython
@pytest.mark.parametrize(
    ("init", "told"),
    [
        ("raise ConnectionError('no cluster at ' + address + '.\\nDetails')", "no cluster at h:1"),
        ("raise OSError", "OSError"),
        ("import os; os._exit(7)", "ray has ended with exit code 7"),
        ("import signal; signal.pause()", "nothing answers within 1 s"),
    ],
)
def test_what_cannot_be_asked_is_told_in_one_sentence(
    init: str, told: str, install: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ray does, the command ends in time and says where the head is named."""
    install(init)
    if "pause" in init:
        monkeypatch.setattr(ray_cluster, "_ANSWER_S", 1.0)
    with pytest.raises(Unreachable) as caught:
        ray_hosts("h:1")
    assert caught.value.message == f"the Ray cluster cannot be asked: {told}."
    assert "ray:HOST:PORT" in str(caught.value.help)


@pytest.mark.anypython
def test_without_ray_hosts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed, one sentence says so."""
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unreachable, match="ray is not installed beside this command"):
        ray_hosts("")
