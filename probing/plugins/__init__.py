"""What a plugin is: tables, actions, saved questions and rules that somebody else adds to probing.

    # pyproject.toml of the plugin
    [project.entry-points."probing.plugins"]
    energy = "probing_energy:plugin"

Rules of this file: standard library only, for a plugin is imported in the training, too. Plugins
are looked for where they are needed: in a process with an agent as recording begins, and by a
command that asks for its rules or questions. One that fails is told, and harms no other.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ProbingError
from ..messages.frozen import dataclass
from ..script.own_tables import ROWS, TEXT_BYTES
from ..settings import find
from ..settings.values import parse

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "probing.plugins"
"""The group of entry points."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}")

Row = Mapping[str, Any]


class Writer(Protocol):
    """What a source adds its rows by."""

    def add(self, /, **values: Any) -> None:
        """Record a row; raises nothing. See `probing.ScriptTable.add`."""

    def guarded(self, function: Callable[..., Any]) -> Callable[..., None]:
        """A function that may fail: the third time that it does, its source is switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTable:
    """A table whose rows are on record: they outlive the process.

    Attributes:
        name: What SQL calls it.
        columns: ``int``, ``float``, ``bool`` or ``str`` by their names; see `probing.table`.
        doc: What a row means.
        each_step: Gives the row of a step, or None for no row; called in the training thread as
            each step ends, so it must take microseconds.
        start: Begins to record, and returns what ends that, or None.
        rows: How many rows are held.
        text_bytes: How much of a text a row holds.
    """

    name: str
    columns: Mapping[str, type]
    doc: str
    each_step: Callable[[], Row | None] | None = None
    start: Callable[[Writer], Callable[[], object] | None] | None = None
    rows: int = ROWS
    text_bytes: int = TEXT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTable:
    """A table that is computed when it is asked, in a thread of the agent's.

    Attributes:
        compute: Gives its rows.
    """

    name: str
    columns: Mapping[str, type]
    doc: str
    compute: Callable[[], Iterable[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A change to a running training, for ``probing ENDPOINT act run NAME [PARAMETER=VALUE]...``.

    Attributes:
        doc: What it does, one sentence.
        apply: Does it, in the training thread between two steps, with the names that `eval` knows
            (``model``, ``optimizer``, ...) and the parameters as texts. Returns what has changed:
            what it is, what it was and what it is now.
        parameters: What each is where nobody says.
    """

    name: str
    doc: str
    apply: Callable[[Mapping[str, Any], Mapping[str, str]], Iterable[tuple[str, Any, Any]] | None]
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A saved question, for ``probing ENDPOINT query @NAME``.

    Attributes:
        doc: What it answers, one sentence.
        sql: With ``$name`` where a parameter stands.
        parameters: What each is where nobody says.
    """

    name: str
    doc: str
    sql: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What one package adds.

    Attributes:
        rules: Gives rules of the doctor, each a `probing.rules.Rule`; called where the doctor is,
            never in the training.
    """

    tables: tuple[RecordedTable | LiveTable, ...] = ()
    actions: tuple[Action, ...] = ()
    questions: tuple[Question, ...] = ()
    rules: Callable[[], Iterable[Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A plugin that is installed.

    Attributes:
        name: That of its entry point.
        plugin: What it adds; nothing where it cannot be loaded.
        problem: Why it cannot; None where it can.
    """

    name: str
    plugin: Plugin
    problem: str | None = None


def installed() -> tuple[Installed, ...]:
    """All plugins that are installed, by name; none with PROBING_PLUGINS=0."""
    setting = find("plugins")
    text = os.environ.get(setting.env)
    try:
        is_on = text is None or parse(setting, text)
    except ProbingError:  # the agent says so
        is_on = True
    return _found() if is_on else ()


@functools.cache
def _found() -> tuple[Installed, ...]:
    from importlib.metadata import entry_points

    try:
        points = {point.name: point for point in entry_points(group=GROUP)}
    except Exception as error:  # noqa: BLE001 - the metadata of any package may be damaged
        return (Installed(name="any", plugin=Plugin(), problem=failure(error)),)
    return tuple([_load(points[name]) for name in sorted(points)])


def _load(point: EntryPoint) -> Installed:
    name, problem = point.name, None
    try:
        found = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a plugin may call sys.exit as it is imported
        return Installed(name=name, plugin=Plugin(), problem=failure(error))
    if not isinstance(found, Plugin):
        problem = f"{point.value} is a {type(found).__name__}, and not a probing.plugins.Plugin"
    elif not _NAME.fullmatch(name):
        problem = "a plugin's name is lower-case letters, digits, _ and -"
    elif (wrong := _wrong_part(found)) is not None:
        problem = wrong
    else:
        return Installed(name=name, plugin=found)
    return Installed(name=name, plugin=Plugin(), problem=problem)


def _wrong_part(plugin: Plugin) -> str | None:
    """What a plugin has that is not what its field is to hold; each table is judged later."""
    for name in ("tables", "actions", "questions"):
        those = getattr(plugin, name)
        if not isinstance(those, (tuple, list)):
            return f"its {name} are a {type(those).__name__}, and not a tuple"
    for kind, all_of in ((Action, plugin.actions), (Question, plugin.questions)):
        for one in all_of:
            if not isinstance(one, kind) or not isinstance(one.name, str):
                return f"it has a {type(one).__name__} that is no {kind.__name__} with a name"
    return None


def failure(error: BaseException) -> str:
    """An exception of a plugin's as the end of a sentence."""
    if isinstance(error, ProbingError):
        return error.message.rstrip(".")
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
