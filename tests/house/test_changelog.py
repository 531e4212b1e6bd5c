"""The changelog: fragments of changes become the section of a release."""

from __future__ import annotations

import datetime as dt
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.harness.targets import ROOT

pytestmark = pytest.mark.anypython

CHANGELOG = """\
# Changelog

## [Unreleased]

### Fixed

- An old line.

## [0.1.0] - 2026-01-01

### Added

- All of it.
"""


@pytest.fixture(scope="module")
def changelog() -> ModuleType:
    """The program that assembles it."""
    spec = importlib.util.spec_from_file_location("changelog", ROOT / "docs" / "changelog.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with a changelog and two fragments."""
    changes = tmp_path / "docs" / "changes"
    changes.mkdir(parents=True)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (changes / "a-command.added.md").write_text("- A command.\n")
    (changes / "a-mend.fixed.md").write_text("- A new line.\n")
    return tmp_path


def test_a_release_has_all_that_is_unreleased(changelog: ModuleType, tree: Path) -> None:
    """Lines and fragments stand under the version, by type; then nothing is unreleased."""
    changelog.release(tree, "0.2.0", dt.date(2026, 2, 3))
    head, _, rest = (tree / "CHANGELOG.md").read_text().partition("## [Unreleased]\n\n")
    assert head == "# Changelog\n\n"
    assert rest.startswith(
        "## [0.2.0] - 2026-02-03\n\n### Added\n\n- A command.\n\n"
        "### Fixed\n\n- An old line.\n- A new line.\n\n## [0.1.0] - 2026-01-01\n"
    )
    assert changelog.fragments(tree) == {}
    assert changelog.unreleased(tree) == ""


@pytest.mark.parametrize("name", ["note.md", "note.news.md", "a.b.fixed.md"])
def test_a_fragment_of_no_type_is_refused(changelog: ModuleType, tree: Path, name: str) -> None:
    """The name of a fragment says what kind of change it is."""
    (tree / "docs" / "changes" / name).write_text("- A line.\n")
    with pytest.raises(ValueError, match=r"NAME\.TYPE\.md"):
        changelog.fragments(tree)


def test_the_fragments_of_this_tree_are_told(changelog: ModuleType) -> None:
    """Each fragment has a type and a bullet, and is part of the next release."""
    text = changelog.unreleased(ROOT)
    for fragment in changelog.fragments(ROOT):
        assert fragment.read_text("utf-8").strip() in text
