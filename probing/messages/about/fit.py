"""What `fit` asks and answers, and the search for the largest batch.

Rules of this file: records and arithmetic; no I/O. The records travel as JSON, as those of
`probing.messages.common`. Where a figure is not known it is None, never 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...errors import FitRefused
from ..frozen import InNotebooks, dataclass
from ..limits import TimeLimit

MISSING = "beyond the simulation"
"""What a recorded step took that its simulation does not have."""
_LEAST_MISSING = 0.01
MOST_RUNS = 8
"""How many batch sizes the search for the largest may try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """A step whose peak of memory is asked for; what is None is as the training has it.

    Attributes:
        batch: Samples in a micro-batch.
        seq: Tokens in a sample.
        layers: Identical blocks.
        timeout_s: How long all of it may take, waiting included.
    """

    batch: int | None = None
    seq: int | None = None
    layers: int | None = None
    timeout_s: TimeLimit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitShape:
    """The sizes of a step; `seq` and `layers` are None where the model has no such thing."""

    batch: int
    seq: int | None = None
    layers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPart:
    """The bytes of one category at the peak."""

    category: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPeak:
    """What the tensors of one step take at most.

    Attributes:
        phase: Where in the step that is: ``forward``, ``loss``, ``backward`` or ``optimizer``.
    """

    shape: FitShape
    bytes: int
    phase: str
    parts: tuple[FitPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer(InNotebooks):
    """A prediction.

    Attributes:
        step: The training step whose shapes it rests on.
        now: The step as the training runs it.
        asked: The step that was asked for.
        micro_batches: Backward passes for each step of the optimizer.
        blocks: The path of the list of identical blocks, if there is one.
        block_class: The class of those blocks.
        config_field: The field of the model's configuration with their number.
        loss: The operations that make the loss, as they were simulated.
        measured_bytes: The peak by the device's allocator; on a CPU, of a step with every
            allocation recorded.
        fixed_bytes: What the process needs beside its tensors.
        room_bytes: How much this process may have in all.
        room: What sets that limit, in words.
        held_s: How long the training was held.
        basis: What it rests on, if on measured steps.
        shapes: How many batch sizes were measured.
        miss: By how much it misses, at most, what was measured of another size.
    """

    model: str
    device: str
    step: int | None
    now: FitPeak
    asked: FitPeak
    micro_batches: int
    blocks: str | None
    block_class: str | None
    config_field: str | None
    loss: str
    measured_bytes: int | None
    fixed_bytes: int | None
    room_bytes: int | None
    room: str | None
    held_s: float
    notes: tuple[str, ...] = ()
    basis: str | None = None
    shapes: int | None = None
    miss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestFit:
    """The largest batch that fits.

    Attributes:
        answer: The prediction for it.
        next_batch: The smallest batch found not to fit; None where none was.
        limit_bytes: What it was to fit into, the margin taken off.
        pairs: Micro-batch and accumulation pairs with the samples per step that the training has.
        tried: The batches that were simulated, in order.
    """

    answer: FitAnswer
    next_batch: int | None
    limit_bytes: int
    margin: float
    pairs: tuple[tuple[int, int], ...]
    tried: tuple[int, ...]


def needed_bytes(answer: FitAnswer) -> int:
    """What the asked step needs of the device, tensors and all."""
    return answer.asked.bytes + (answer.fixed_bytes or 0)


def with_missing(answer: FitAnswer) -> FitAnswer:
    """The same with what a step really takes beyond the simulation of it, as a part of its own.

    That is what kernels take and keep inside one operation, so it is taken to grow with the batch.
    Too small a difference changes nothing, nor does a step that takes less than was predicted, nor
    what an accelerator has measured, as that need not be of such a step.
    """
    if answer.device != "cpu":
        return answer
    missing = (answer.measured_bytes or 0) - answer.now.bytes
    if missing < _LEAST_MISSING * answer.now.bytes:
        return answer
    now, asked = answer.now.shape, answer.asked.shape
    ratio = asked.batch * (asked.seq or 1) / (now.batch * (now.seq or 1))
    return replace(
        answer, now=_with_part(answer.now, missing), asked=_with_part(answer.asked, missing * ratio)
    )


def _with_part(peak: FitPeak, size: float) -> FitPeak:
    part = FitPart(category=MISSING, bytes=round(size))
    return replace(peak, bytes=peak.bytes + part.bytes, parts=(*peak.parts, part))


def error_of(answer: FitAnswer) -> float | None:
    """By how much the simulation of the training's own step misses what was measured."""
    if not answer.measured_bytes:
        return None
    added = sum(part.bytes for part in answer.now.parts if part.category == MISSING)
    return (answer.now.bytes - added) / answer.measured_bytes - 1.0


def find_largest(
    ask: Callable[[int | None], FitAnswer], *, memory: int | None, margin: float
) -> LargestFit:
    """The largest batch that fits, each candidate simulated.

    The peak grows in pieces that are linear in the batch, so the line through the last two runs
    tells where to look next; what is returned has been simulated itself.

    Args:
        ask: Predicts for a batch; None for the training's own.
        memory: What it must fit into; None for what the process may have.
        margin: The share of that to leave free.

    Raises:
        FitRefused: Not even one sample fits, or the limit is not known.
    """
    first = ask(None)
    room = memory if memory is not None else first.room_bytes
    if room is None:
        raise FitRefused(
            f"how much memory {first.device} has is not known",
            help="--memory 80GiB says what the training must fit into.",
        )
    limit = int(room * (1.0 - margin))
    known = {first.asked.shape.batch: first}
    while len(known) < MOST_RUNS:
        batch = _next_batch(known, limit)
        if batch is None:
            break
        known[batch] = ask(batch)
    fitting = [batch for batch, answer in known.items() if needed_bytes(answer) <= limit]
    beyond = [batch for batch, answer in known.items() if needed_bytes(answer) > limit]
    if not fitting:
        raise FitRefused(
            f"not even a batch of {min(beyond)} fits into {limit:,} bytes",
            help="A smaller --margin, more --memory, a smaller --seq or fewer --layers may.",
        )
    best = max(fitting)
    samples = first.now.shape.batch * first.micro_batches
    return LargestFit(
        answer=known[best],
        next_batch=min(beyond) if beyond else None,
        limit_bytes=limit,
        margin=margin,
        pairs=accumulation_pairs(samples, best),
        tried=tuple(known),
    )


def accumulation_pairs(samples: int, largest: int) -> tuple[tuple[int, int], ...]:
    """Micro-batches up to `largest` and how often to accumulate each, with one product."""
    fitting = [size for size in range(min(samples, largest), 0, -1) if samples % size == 0]
    return tuple([(size, samples // size) for size in fitting[:4]])


def _next_batch(known: dict[int, FitAnswer], limit: int) -> int | None:
    """The batch to try next; None once the largest is known."""
    needs = {batch: needed_bytes(answer) for batch, answer in known.items()}
    below = max((b for b, need in needs.items() if need <= limit), default=0)
    above = min((b for b, need in needs.items() if need > limit), default=None)
    if above is not None and above - below <= 1:
        return None
    if len(needs) == 1:
        return 2 * below if below else max(1, (above or 2) // 2)
    (b1, n1), (b2, n2) = sorted(needs.items(), key=lambda item: abs(item[1] - limit))[:2]
    slope = (n2 - n1) / (b2 - b1)
    guess = b1 + int((limit - n1) // slope) if slope > 0 else 2 * max(b1, b2)
    if above is None:
        return max(below + 1, guess)
    return min(max(guess, below + 1), above - 1)
