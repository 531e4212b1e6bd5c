"""How many modules stand side by side in a folder, so that a reader finds the one that is meant."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

from probing.cli.tasks import COMMANDS
from tests.house.test_lengths import modules

MOST_MODULES = 12

FOUND_BY_NAME = {
    "cli/commands": "one file for each command, of the command's name",
    "probing/tables": "one file for each subject; its first line says which tables it declares",
}
"""Folders with more of them, and why a reader finds each without looking through all."""


def rooms() -> dict[str, int]:
    """Each folder of the product that has more modules beside its `__init__` than it may."""
    paths = [PurePosixPath(name) for name, _ in modules()]
    found = Counter(path.parent.as_posix() for path in paths if path.name != "__init__.py")
    assert len(found) > 50
    return {name: count for name, count in found.items() if count > MOST_MODULES}


def test_a_folder_holds_a_dozen_modules() -> None:
    """What a folder holds beyond that makes rooms of its own, but for what is found by name."""
    assert {name: n for name, n in rooms().items() if name not in FOUND_BY_NAME} == {}


def test_the_exceptions_are_needed() -> None:
    """What is excepted is as large as that; else it is an exception no more."""
    assert rooms().keys() >= FOUND_BY_NAME.keys()


def test_a_command_has_the_file_of_its_name() -> None:
    """The file of a command is named as the command, but for words that Python has taken."""
    files = {name: module.removesuffix("_") for name, module in COMMANDS.items()}
    assert files == {name: name.replace("-", "_") for name in COMMANDS}
