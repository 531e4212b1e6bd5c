"""What is true of the programs of `programs/`, and what the doctor's answers are worth.

Rules of this file: it reads `programs.toml` and judges as the zoo does; it starts nothing.
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.zoo.judge import judge
from tests.zoo.table import Expectation

ROOM = Path(__file__).resolve().parent
PROGRAMS = ROOM / "programs"
VERDICTS = {"right first", "among three", "not found", "quiet", "false alarm", "not judged"}
"""What is said of a program that was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program: what is true of it, and which rules say so."""

    expected: Expectation
    right: tuple[str, ...]
    is_device_only: bool

    @property
    def path(self) -> Path:
        """Where it lies."""
        return PROGRAMS / f"{self.expected.name}.py"


def programs(names: list[str] | None = None) -> list[Program]:
    """Return those of the names, or all, in the order of the table.

    Raises:
        SystemExit: There is no such program, or this Python is too old.
    """
    try:
        toml: Any = importlib.import_module("tomllib")  # the type checker reads as 3.10
    except ModuleNotFoundError:
        raise SystemExit("programs.toml is read by Python 3.11 and newer") from None
    entries: dict[str, dict[str, Any]] = toml.loads((ROOM / "programs.toml").read_text("utf-8"))
    if unknown := [name for name in names or [] if name not in entries]:
        raise SystemExit(f"no program is called {unknown[0]}; there are {', '.join(entries)}")
    return [_program(name, dict(entries[name])) for name in dict.fromkeys(names or entries)]


def _program(name: str, entry: dict[str, Any]) -> Program:
    right, is_device_only = tuple(entry.pop("right")), bool(entry.pop("device_only", False))
    for key in ("also", "lines"):
        entry[key] = tuple(entry.get(key, ()))
    about = Expectation(name=name, start="plain", look_after_step=0, wait_s=0, **entry)
    return Program(expected=about, right=right, is_device_only=is_device_only)


def verdict(program: Program, said: dict[str, Any]) -> str:
    """What became of it, in a word or two."""
    found = judge(program.expected, said, list(program.right))
    if found.problem:
        return found.problem
    if program.is_device_only and os.environ.get("DEVICE") == "cpu":
        return "not judged"
    if program.expected.is_healthy:
        return "false alarm" if set(found.alarms) - set(program.expected.also) else "quiet"
    if found.place is None or found.place > 3:
        return "not found"
    return "right first" if found.place == 1 else "among three"


def rules(program: Program, said: dict[str, Any]) -> list[str]:
    """The rules of the findings; what is certain or likely and not true has a mark."""
    true = {*program.right, *program.expected.also}
    return [
        f"{'' if f['certainty'] == 'possible' or f['rule'] in true else '!'}{f['rule']}"
        f" ({f['certainty']})"
        for f in findings(said)
    ]


def findings(said: dict[str, Any]) -> list[dict[str, Any]]:
    """What was found; nothing where there is no report."""
    found: list[dict[str, Any]] = (
        [] if "problem" in said else json.loads(said["stdout"])["findings"]
    )
    return found
