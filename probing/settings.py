"""The settings, each declared once as a field of `Settings`.

Rules of this file: a setting's name, default, meaning and check live here; the environment
is read once, by `Settings.from_env`, from the mapping that is passed in. The frozen object is
handed down; nothing else in probing reads an environment variable to decide what to do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from .errors import BadSetting

T = TypeVar("T")

OBSOLETE: dict[str, str] = {}
"""Names that once were settings, each with the sentence that says what to use now."""


def _setting(
    env: str, default: T, doc: str, *, live: bool = False, secret: bool = False, minimum: float = 0
) -> T:
    """Declare one setting; the field's type is the setting's."""
    metadata = {"env": env, "doc": doc, "live": live, "secret": secret, "minimum": minimum}
    value: T = field(default=default, metadata=metadata)
    return value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Settings:
    """All settings of one process, as they are in force."""

    mode: str = _setting(
        "PROBING",
        "off",
        "`1` puts the agent into every Python process that imports torch, `all` into every Python"
        " process, `0` (or unset) into none.",
    )
    home: str = _setting(
        "PROBING_HOME",
        "",
        "The run directory. Unset: `$XDG_RUNTIME_DIR/probing`, else `/dev/shm/probing-<uid>`.",
    )
    listen: str = _setting(
        "PROBING_LISTEN",
        "",
        "`host:port` to listen on beside the unix socket; LOCAL_RANK is added to the port, and port"
        " 0 takes a free one. Unset: no TCP. Every TCP request needs the token.",
    )
    insecure_plaintext: bool = _setting(
        "PROBING_INSECURE_PLAINTEXT",
        default=False,
        doc="`1` allows PROBING_LISTEN on an address that other machines reach. Tokens, code and"
        " answers then cross the network unencrypted.",
    )
    hosts: str = _setting(
        "PROBING_HOSTS",
        "",
        "Further names, `host:port` separated by commas, by which TCP requests may address this"
        " process. Its own address and localhost always may.",
    )
    token: str = _setting(
        "PROBING_TOKEN",
        "",
        "The token of TCP requests, for the agent and for the command line. Unset: the agent makes"
        " one and keeps it in the file `token` of its run folder.",
        secret=True,
    )
    recording: bool = _setting(
        "PROBING_RECORDING", default=True, doc="Whether the recorded tables grow.", live=True
    )
    trace_rows: int = _setting(
        "PROBING_TRACE_ROWS",
        262_144,
        "Rows that python.torch_trace holds before the oldest is overwritten; 64 bytes each.",
        minimum=64,
    )
    step_rows: int = _setting(
        "PROBING_STEP_ROWS",
        16_384,
        "Rows that python.steps, python.micro_batches and probing.overhead hold each before the"
        " oldest is overwritten; 192, 112 and 80 bytes each.",
        minimum=64,
    )
    mark_rows: int = _setting(
        "PROBING_MARK_ROWS",
        8_192,
        "Rows that python.spans and python.metrics hold each before the oldest is overwritten; 48"
        " bytes each.",
        minimum=64,
    )
    overhead: float = _setting(
        "PROBING_OVERHEAD",
        1.0,
        "Percent of a step that recording may cost: the backward pass of the smallest modules is"
        " left out first, then the smallest modules altogether.",
    )
    batch_rows: int = _setting(
        "PROBING_BATCH_ROWS",
        16_384,
        "Rows that python.batches holds before the oldest is overwritten; 96 bytes each.",
        minimum=64,
    )
    gradients_every: int = _setting(
        "PROBING_GRADIENTS_EVERY",
        0,
        "Write python.gradients of one step in so many; 0: only when it is asked for.",
        live=True,
    )
    gradient_rows: int = _setting(
        "PROBING_GRADIENT_ROWS",
        16_384,
        "Rows that python.gradients holds before the oldest is overwritten; 120 bytes each.",
        minimum=64,
    )
    memory_rows: int = _setting(
        "PROBING_MEMORY_ROWS",
        16_384,
        "Rows that python.memory holds before the oldest is overwritten; 152 bytes each.",
        minimum=64,
    )
    sampling_hz: float = _setting(
        "PROBING_SAMPLING_HZ",
        0.0,
        "How often per second python.samples notes where every thread is; 0: never.",
        live=True,
    )
    sample_rows: int = _setting(
        "PROBING_SAMPLE_ROWS",
        8_192,
        "Rows that python.samples holds before the oldest is overwritten; 72 bytes each.",
        minimum=64,
    )
    keep_hours: float = _setting(
        "PROBING_KEEP_HOURS", 24.0, "How long the record of an ended process is kept."
    )
    keep_mib: int = _setting(
        "PROBING_KEEP_MIB", 512, "How much the records of ended processes may take together."
    )
    query_timeout_s: float = _setting(
        "PROBING_QUERY_TIMEOUT_S", 30.0, "The time limit of a remote query.", live=True
    )
    query_memory_mib: int = _setting(
        "PROBING_QUERY_MEMORY_MIB",
        512,
        "The memory a query's engine may use.",
        live=True,
        minimum=64,
    )
    query_max_rows: int = _setting(
        "PROBING_QUERY_MAX_ROWS",
        1_000_000,
        "Rows of a remote answer; what is beyond is cut, and the answer says so.",
        live=True,
    )
    query_max_bytes: int = _setting(
        "PROBING_QUERY_MAX_BYTES",
        64 << 20,
        "Bytes of a remote answer; what is beyond is cut, and the answer says so.",
        live=True,
    )
    worker_idle_s: float = _setting(
        "PROBING_WORKER_IDLE_S", 60.0, "How long the SQL worker process lives without a query."
    )
    eval_timeout_s: float = _setting(
        "PROBING_EVAL_TIMEOUT_S",
        10.0,
        "The time limit of an eval that names none: waiting for a safe point included.",
        live=True,
    )
    eval_max_bytes: int = _setting(
        "PROBING_EVAL_MAX_BYTES",
        1 << 20,
        "Bytes of an eval's output that are kept; the rest is counted.",
        live=True,
    )
    eval_max_running: int = _setting(
        "PROBING_EVAL_MAX_RUNNING", 4, "Evals in hand at once.", live=True, minimum=1
    )
    max_connections: int = _setting(
        "PROBING_MAX_CONNECTIONS", 64, "Connections the agent holds at once.", minimum=1
    )
    max_requests: int = _setting(
        "PROBING_MAX_REQUESTS", 16, "Requests the agent has in hand at once.", live=True, minimum=1
    )
    max_body_bytes: int = _setting(
        "PROBING_MAX_BODY_BYTES", 1 << 20, "Bytes of a request's body.", minimum=1024
    )

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """The settings that an environment asks for, defaults for the rest.

        Raises:
            BadSetting: A variable holds a value its setting cannot take.
        """
        given = {s.name: parse(s, env[s.env]) for s in SETTINGS if env.get(s.env)}
        return cls(**given)

    def with_value(self, name: str, text: str) -> Settings:
        """A copy with one live setting changed.

        Raises:
            BadSetting: No such setting, not one that can change while the process runs, or
                not a value it can take.
        """
        setting = find(name)
        if not setting.live:
            raise BadSetting(name, f"it is read at start only; set {setting.env} before the start")
        return dataclasses.replace(self, **{setting.name: parse(setting, text)})


class Setting(NamedTuple):
    """What is known about one setting.

    Attributes:
        name: The field of `Settings`.
        env: The environment variable.
        type: ``bool``, ``int``, ``float`` or ``str``.
        default: Its value when nothing sets it.
        live: Whether `probing ENDPOINT config NAME=VALUE` can change it.
        secret: Whether its value is never shown.
        minimum: The smallest number it may be.
    """

    name: str
    env: str
    type: str
    default: bool | int | float | str
    doc: str
    live: bool
    secret: bool
    minimum: float


def _default_of(spec: dataclasses.Field[Any]) -> Any:
    """A field's default; every setting has one."""
    return spec.default


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(name=f.name, type=str(f.type), default=_default_of(f), **f.metadata)
    for f in dataclasses.fields(Settings)
)


def find(name: str) -> Setting:
    """The setting of that name, or of that environment variable.

    Raises:
        BadSetting: There is none.
    """
    if name in OBSOLETE:
        raise BadSetting(name, OBSOLETE[name])
    for setting in SETTINGS:
        if name in (setting.name, setting.env):
            return setting
    raise BadSetting(name, "there is no such setting")


_MODES = {"0": "off", "off": "off", "1": "on", "on": "on", "all": "all"}
_BOOLS = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


def parse(setting: Setting, text: str) -> Any:
    """The value that a text stands for.

    Raises:
        BadSetting: The text is not a value of the setting's type, or out of its range.
    """
    word = text.strip()
    if setting.name == "mode":
        return _choose(setting, _MODES, word)
    if setting.type == "bool":
        return _choose(setting, _BOOLS, word)
    if setting.type == "str":
        return word
    convert: Callable[[str], float] = int if setting.type == "int" else float
    try:
        value = convert(word)
    except ValueError:
        shown = "an integer" if setting.type == "int" else "a number"
        raise BadSetting(setting.env, f"{word!r} is not {shown}") from None
    if not setting.minimum <= value < float("inf"):
        raise BadSetting(setting.env, f"{word} is less than {setting.minimum:g} or not finite")
    return value


def _choose(setting: Setting, choices: Mapping[str, Any], word: str) -> Any:
    """The choice that a word names, whatever its case."""
    try:
        return choices[word.lower()]
    except KeyError:
        raise BadSetting(setting.env, f"{word!r} is not one of {', '.join(choices)}") from None
