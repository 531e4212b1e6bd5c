"""Fixtures that every test module may use."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import Target, start_program, start_training


def pytest_configure() -> None:
    """Hear Ctrl-C even where a shell has started the tests in its background and so muted it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes an accelerator or very long, unless it is asked for by its marker."""
    for marker in ("gpu", "full"):
        if marker not in config.option.markexpr:
            special = [item for item in items if item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=special)
            items[:] = [item for item in items if item not in special]


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The bundled training, running with the agent for the whole session; do not harm it."""
    cwd = tmp_path_factory.mktemp("training")
    target = start_training(home=cwd / "home", cwd=cwd)
    yield target
    target.reap()


@pytest.fixture
def fresh_training(tmp_path: Path) -> Iterator[Target]:
    """The bundled training, for this test alone."""
    target = start_training(home=tmp_path / "home", cwd=tmp_path)
    yield target
    target.reap()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Target]]:
    """Starts programs of ``tests/programs`` by name, each with the agent watching."""
    targets: list[Target] = []

    def start(name: str, *args: str, **extra: str) -> Target:
        cwd = tmp_path / f"{name}-{len(targets)}"
        cwd.mkdir()
        target = start_program(name, *args, home=tmp_path / "home", cwd=cwd, **extra)
        targets.append(target)
        return target

    yield start
    for target in targets:
        target.reap()
