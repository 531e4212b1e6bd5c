"""The user's own file: names of endpoints, and defaults of options.

    [endpoints]
    job = ["node1:8080", "node2:8080"]

    [defaults]
    timeout = 60

    [defaults.query]
    limit = 50

Rules of this file: the command line comes before the environment, that before this file, and this
before what is built in. A mistake in the file is told with its line, and nothing runs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..messages.frozen import dataclass
from .tasks import COMMANDS, SHORT_FORMS

if TYPE_CHECKING:
    import click


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_RESERVED = frozenset({"all", "help", "version"})
_SECTION = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?")
_LINE_OF_ERROR = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)")
_SIMPLE = (bool, int, float, str)
_BEFORE = {
    "tls_ca": ("PROBING_TLS_CA",),
    "tls_fingerprint": ("PROBING_TLS_FINGERPRINT",),
    "token_file": ("PROBING_TOKEN",),
    "color": ("NO_COLOR",),
    "no_pager": ("PROBING_PAGER",),
}
"""Options, and the variables that say the same."""
_EACH_TIME = frozenset({"help", "version", "target", "watch", "output", "attach", "former"})
"""Options that are no habit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What the file says.

    Attributes:
        path: Where it is, or would be.
        endpoints: What each name stands for.
        defaults: Of options of all commands, and by command.
    """

    path: Path
    text: str = ""
    endpoints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def line_of(self, section: str, key: str | None = None) -> int:
        """Where something stands in the file; of a key that is not found, its section."""
        here, found = "", 1
        for number, line in enumerate(self.text.split("\n"), 1):
            heading = _SECTION.fullmatch(line)
            if heading:
                here = heading[1].replace(" ", "").replace('"', "")
                if here == section or (key is not None and here == f"{section}.{key}"):
                    found = number
            elif here == section and key is not None:
                word = line.partition("=")[0].strip().strip("\"'")
                if word == key:
                    return number
        return found

    def mistake(self, section: str, key: str | None, what: str) -> UsageError:
        """The error about something in the file."""
        line = self.line_of(section, key)
        return UsageError(f"{self.path}, line {line}: {what}.", help=_HELP)


_HELP = (
    "[endpoints] has names of endpoints, [defaults] and [defaults.COMMAND] values of options, by"
    " the names that `probing COMMAND --help` shows."
)
_read: dict[Path, Preferences] = {}


def preferences_path() -> Path:
    """Where the file is looked for; beginning with ``~`` for a user who has no home."""
    home = os.environ.get("XDG_CONFIG_HOME")
    folder = home if home and os.path.isabs(home) else os.path.expanduser("~/.config")
    return Path(folder) / "probing.toml"


def preferences() -> Preferences:
    """The file, read once; an empty one where there is none.

    Raises:
        UsageError: It cannot be read, or something in it is wrong.
    """
    path = preferences_path()
    if path not in _read:
        _read[path] = _load(path) if path.is_absolute() else Preferences(path=path)
    return _read[path]


def endpoints_named(word: str) -> tuple[str, ...]:
    """What an endpoint stands for; itself, where it is no name of the file.

    Raises:
        UsageError: Something in the file is wrong.
    """
    return preferences().endpoints.get(word, (word,))


def default_map(group: click.Group, ctx: click.Context) -> dict[str, Any]:
    """The defaults as click takes them, those left out that the environment says.

    Raises:
        UsageError: One is of no command or option, or has a value that the option cannot have.
    """
    found = preferences()
    every: dict[str, Any] = {}
    for key, value in found.defaults.items():
        if isinstance(value, Mapping):
            if key not in group.list_commands(ctx):
                raise found.mistake(f"defaults.{key}", None, f"there is no command {key!r}")
            chosen = _of_command(found, group, ctx, key, value)
            every |= dict.fromkeys(
                [key, *(s for s, name in SHORT_FORMS.items() if name == key)], chosen
            )
        else:
            _put(every, found, "defaults", group, (key, value))
    return every


def _of_command(
    found: Preferences,
    group: click.Group,
    ctx: click.Context,
    name: str,
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """The defaults of one command."""
    command = group.get_command(ctx, name)
    assert command is not None
    chosen: dict[str, Any] = {}
    for pair in values.items():
        _put(chosen, found, f"defaults.{name}", command, pair)
    return chosen


def _put(
    chosen: dict[str, Any],
    found: Preferences,
    section: str,
    command: click.Command,
    pair: tuple[str, Any],
) -> None:
    """Take the default of one option, unless the environment says something else."""
    import click

    key, value = pair
    options = {_spelt(o): o for o in command.params if isinstance(o, click.Option)}
    option = options.get(key)
    whose = "of every command" if section == "defaults" else f"of {section.partition('.')[2]}"
    if option is None or option.hidden or option.name in _EACH_TIME or option.multiple:
        names = ", ".join(sorted(name for name, o in options.items() if _is_habit(o)))
        what = f"{key!r} is no option {whose} that has a default here; there are {names}"
        raise found.mistake(section, key, what)
    if not isinstance(value, _SIMPLE) or option.is_flag != isinstance(value, bool):
        kind = "true or false" if option.is_flag else "a number or a text"
        raise found.mistake(section, key, f"{key} has to be {kind}")
    try:
        converted = option.type.convert(value, option, None)
    except click.BadParameter as error:
        raise found.mistake(section, key, f"{key}: {error.message.rstrip('.')}") from None
    assert option.name is not None
    if not any(os.environ.get(name) for name in _BEFORE.get(option.name, ())):
        chosen[option.name] = converted


def _is_habit(option: click.Option) -> bool:
    return not (option.hidden or option.multiple or option.name in _EACH_TIME)


def _spelt(option: click.Option) -> str:
    """Its name as it is typed, without the dashes."""
    return max(option.opts, key=len).lstrip("-")


def _load(path: Path) -> Preferences:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Preferences(path=path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"cannot read {path}: {reason}.") from None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, text, error) from None
    return _checked(Preferences(path=path, text=text), data)


def _not_toml(path: Path, text: str, error: ValueError) -> UsageError:
    """The error about a file that is no TOML."""
    at = _LINE_OF_ERROR.search(str(error))
    line = at[1] if at is not None and at[1] else len(text.rstrip("\n").split("\n"))
    what = _LINE_OF_ERROR.sub("", str(error)).strip()
    return UsageError(f"{path}, line {line}: this is not TOML: {what}.", help=_HELP)


def _checked(empty: Preferences, data: Mapping[str, Any]) -> Preferences:
    """The file's content, where it is what can stand there."""
    for key, value in data.items():
        if key not in ("endpoints", "defaults") or not isinstance(value, Mapping):
            what = f"{key!r} is neither [endpoints] nor [defaults]"
            raise empty.mistake(key if isinstance(value, Mapping) else "", key, what)
    named = {
        name: _endpoints(empty, name, value) for name, value in data.get("endpoints", {}).items()
    }
    return Preferences(
        path=empty.path,
        text=empty.text,
        endpoints=named,
        defaults=data.get("defaults", {}),
    )


def _endpoints(found: Preferences, name: str, value: object) -> tuple[str, ...]:
    if name in COMMANDS or name in SHORT_FORMS or name in _RESERVED:
        raise found.mistake("endpoints", name, f"{name!r} has a meaning already")
    if not _NAME.fullmatch(name):
        what = f"the name {name!r} has to begin with a letter, letters, digits, _ . - behind it"
        raise found.mistake("endpoints", name, what)
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(_is_word(word) for word in words):
        what = f"{name} has to be an endpoint, or a list of them, each a text"
        raise found.mistake("endpoints", name, what)
    return tuple(words)


def _is_word(word: object) -> bool:
    return isinstance(word, str) and bool(word.strip())
