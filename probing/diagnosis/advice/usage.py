"""What to do about memory while there still is some: rules over what is in use.

Rules of this file: see the package. Thresholds are fractions of what the device has in all; without
that figure, nothing is advised. The largest category comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from ...messages.frozen import dataclass
from ...units import percent, size
from .record import Advice

ACTIVATIONS = 0.25
GRADIENTS = 0.1
OPTIMIZER_STATE = 0.1
PARAMETERS_BESIDE_QUANTIZED = 0.1
FRAGMENTED = 0.1
"""Memory that the allocator has reserved and cannot hand out in one piece."""
NEARLY_FULL, FULL = 0.85, 0.95
"""The peak, or what is in use where no peak is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The memory of one device; None for what was not measured.

    Attributes:
        total: What the device has, or what the process may have of the host's memory.
        categories: The most that tensors of each category took at a moment looked at.
        quantized: What of the parameters and buffers is numbers of at most eight bits.
        peak: The most that was in use.
        scattered: What the allocator holds free, without the largest piece of it.
    """

    device: str
    total: int | None
    categories: Mapping[str, int] = field(default_factory=dict)
    quantized: int = 0
    peak: int | None = None
    scattered: int | None = None


def advise_on_usage(usage: Usage) -> tuple[Advice, ...]:
    """What to do, about the largest part first."""
    if not usage.total:
        return ()
    found = sorted(_found(usage, usage.total), key=lambda pair: -pair[0])
    return tuple(suggestion for _, suggestion in found)


def _found(usage: Usage, total: int) -> Iterator[tuple[int, Advice]]:
    """Every suggestion, with the bytes that it is about."""
    for rule, threshold, action in _OF_CATEGORY:
        size = usage.categories.get(rule, 0)
        if size > threshold * total:
            yield size, Advice(rule=rule, action=action, evidence=_part(rule, size, usage))
    parameters = usage.categories.get("parameters", 0) - usage.quantized
    if usage.quantized and parameters > PARAMETERS_BESIDE_QUANTIZED * total:
        evidence = _part("parameters that are not quantized", parameters, usage)
        yield parameters, Advice(rule="parameters", action=_QUANTIZE, evidence=evidence)
    if usage.scattered is not None and usage.scattered > FRAGMENTED * total:
        evidence = _part("free pieces beside the largest one", usage.scattered, usage)
        yield usage.scattered, Advice(rule="fragmented", action=_EXPAND, evidence=evidence)
    if usage.peak is not None and usage.peak > NEARLY_FULL * total:
        evidence = _part("the peak", usage.peak, usage)
        is_full = usage.peak > FULL * total
        rule, action = ("full", _LESS_NOW) if is_full else ("nearly full", _LESS)
        yield usage.peak, Advice(rule=rule, action=action, evidence=evidence)


def _part(what: str, part: int, usage: Usage) -> str:
    what = what.replace("_", " ")
    share = percent(part / (usage.total or part), digits=0)
    return f"{what}: {size(part)}, {share} of {usage.device}"


_QUANTIZE = "quantize the remaining parameters too, or load them once instead of twice"
_EXPAND = "set PYTORCH_ALLOC_CONF=expandable_segments:True, so that free pieces can be joined"
_LESS = "leave room: a longer batch or another program on the device ends in an out-of-memory error"
_LESS_NOW = "use a smaller micro-batch with more accumulation now: any larger step will run out"
_OF_CATEGORY = (
    (
        "activations",
        ACTIVATIONS,
        "recompute them (torch.utils.checkpoint), use a smaller micro-batch with more accumulation,"
        " or autocast to bfloat16",
    ),
    (
        "gradients",
        GRADIENTS,
        "free them between steps (zero_grad(set_to_none=True)), or shard them over ranks (FSDP)",
    ),
    (
        "optimizer_state",
        OPTIMIZER_STATE,
        "use an optimizer with less state (8-bit, Adafactor), or shard it over ranks (FSDP, ZeRO)",
    ),
)
