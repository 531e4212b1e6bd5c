"""What is expected of each program of the zoo: the one reader of `expected.toml`."""

from __future__ import annotations

import importlib
import pathlib
from dataclasses import dataclass, field
from typing import Any

ROOM = pathlib.Path(__file__).resolve().parent
PROGRAMS = ROOM / "programs"
TABLE = ROOM / "expected.toml"

GROUPS = ("stops", "slow", "numbers", "memory", "crashed", "healthy")
STARTS = ("plain", "late", "dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One program: how to start it, when to look at it, and what is right to say then."""

    name: str
    group: str
    start: str
    look_after_step: int
    wait_s: float
    also: tuple[str, ...]
    fault: str = ""
    looks: str = ""
    ranks: int = 1
    spawns: int = 0
    lines: tuple[int, ...] = ()
    place: dict[str, Any] = field(default_factory=dict)
    since_step: int | None = None
    signal: str = ""
    exit: int | None = None

    @property
    def path(self) -> pathlib.Path:
        """Where the program lies."""
        return PROGRAMS / f"{self.name}.py"

    @property
    def world(self) -> int:
        """How many ranks there are, whoever starts them."""
        return self.spawns or self.ranks

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.group == "healthy"


def expectations(names: list[str] | None = None) -> list[Expectation]:
    """Return those of the names in their order, or all of them in the order of the table."""
    toml: Any = importlib.import_module("tomllib")  # Python 3.11; the type checker reads as 3.10
    entries: dict[str, dict[str, Any]] = toml.loads(TABLE.read_text())
    unknown = [name for name in names or [] if name not in entries]
    if unknown:
        raise SystemExit(f"not in {TABLE.name}: {', '.join(unknown)}; its names are the programs'.")
    return [_expectation(name, entries[name]) for name in names or entries]


def _expectation(name: str, entry: dict[str, Any]) -> Expectation:
    values: dict[str, Any] = dict(entry)
    for key in ("also", "lines"):
        values[key] = tuple(entry.get(key, ()))
    return Expectation(name=name, **values)
