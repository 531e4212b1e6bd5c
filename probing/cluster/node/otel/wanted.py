"""What OpenTelemetry's own variables ask for, where they concern more than the protocol.

Rules of this file: pure; text in, what is wanted or a sentence out. The address, headers,
certificates, compression, limits of time and attributes of the resource are read by the SDK.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ....errors import UsageError
from ....messages.frozen import dataclass

_PROTOCOL = "http/protobuf"
_ADDRESS = "http://localhost:4318"
_LEAST_MS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """What is sent of one kind.

    Attributes:
        name: ``metrics`` or ``traces``.
        url: Where to.
        every_s: How often.
    """

    name: str
    url: str
    every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is sent.

    Attributes:
        metrics: None for no figures.
        traces: None for no steps.
        batch: How many steps travel together at most.
    """

    metrics: Signal | None
    traces: Signal | None
    batch: int


def wanted_in(env: Mapping[str, str]) -> Wanted:
    """What an environment asks for.

    Raises:
        UsageError: It asks for what is not done here, or a number is none.
    """
    is_off = _word(env, "OTEL_SDK_DISABLED") == "true"
    every_s = {
        "metrics": _milliseconds(env, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1e3,
        "traces": _milliseconds(env, "OTEL_BSP_SCHEDULE_DELAY", 5_000) / 1e3,
    }
    found = {
        name: None if is_off or not _is_sent(env, name) else _signal(env, name, seconds)
        for name, seconds in every_s.items()
    }
    batch = int(_number(env, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, least=1))
    return Wanted(**found, batch=batch)


def _signal(env: Mapping[str, str], name: str, every_s: float) -> Signal:
    """One kind, where it is sent."""
    protocol = f"OTEL_EXPORTER_OTLP_{name.upper()}_PROTOCOL"
    variable = protocol if env.get(protocol) else "OTEL_EXPORTER_OTLP_PROTOCOL"
    if _word(env, variable) not in ("", _PROTOCOL):
        raise UsageError(
            f"{variable} is {env[variable]}: a node server sends {_PROTOCOL} alone.",
            help=f"Set {variable}={_PROTOCOL}, and the address to that port of the receiver,"
            " usually 4318.",
        )
    own = f"OTEL_EXPORTER_OTLP_{name.upper()}_ENDPOINT"
    variable = own if env.get(own) else "OTEL_EXPORTER_OTLP_ENDPOINT"
    url = env.get(variable) or _ADDRESS
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{variable} is not an address that begins with http:// or https://.")
    return Signal(
        name=name,
        url=url if variable == own else f"{url.removesuffix('/')}/v1/{name}",
        every_s=every_s,
    )


def _is_sent(env: Mapping[str, str], name: str) -> bool:
    """Whether a kind is sent at all."""
    variable = f"OTEL_{name.upper()}_EXPORTER"
    word = _word(env, variable)
    if word not in ("", "otlp", "none"):
        raise UsageError(f"{variable} is {env[variable]}: it has to be otlp or none.")
    return word != "none"


def _milliseconds(env: Mapping[str, str], name: str, default: float) -> float:
    return _number(env, name, default, least=_LEAST_MS)


def _number(env: Mapping[str, str], name: str, default: float, *, least: float) -> float:
    """The number in a variable."""
    text = env.get(name) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number < math.inf:
        raise UsageError(f"{name} is {text}: it has to be a number of at least {least:g}.")
    return number


def _word(env: Mapping[str, str], name: str) -> str:
    return env.get(name, "").strip().lower()
