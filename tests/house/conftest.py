"""Packages that tests look at, built once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.harness.packages import HOOK_FILES, PAGES, build
from tests.harness.targets import ROOT


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is needed to build, links kept as links."""
    target = tmp_path_factory.mktemp("source")
    junk = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "node_modules")
    for name in ("probing", "agent", "cli"):
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=junk)
    files = (
        "pyproject.toml",
        "setup.py",
        "build_backend.py",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
    )
    for name in PAGES:
        shutil.copytree(ROOT / "docs" / name, target / "docs" / name)
    shutil.copy(ROOT / "docs" / "llms.txt", target / "docs")
    for name in (*files, *HOOK_FILES):
        shutil.copy(ROOT / name, target)
    return target


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the tree."""
    return build("build_wheel", source, tmp_path_factory.mktemp("wheel") / "out")


@pytest.fixture(scope="session")
def wheel_from_sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    sdist = build("build_sdist", source, folder / "out")
    shutil.unpack_archive(sdist, folder, filter="data")
    return build("build_wheel", folder / sdist.name.removesuffix(".tar.gz"), folder / "wheel")
