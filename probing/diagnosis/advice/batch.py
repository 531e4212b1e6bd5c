"""What to do where that which grows with the batch has used up the memory."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import size
from .record import Advice
from .seen import LARGE, Shortage

_OF_BATCH = ("activations", "inputs", "temporary")
"""What grows with the batch."""
_MOST_PAIRS = 6


def batch_pairs(samples: int, micro_batches: int) -> list[tuple[int, int]]:
    """Smaller micro-batches, with as many of them as keep the product: `64x1, 32x2, ...`."""
    pairs = [(samples, micro_batches)]
    while pairs[-1][0] % 2 == 0 and len(pairs) < _MOST_PAIRS:
        pairs.append((pairs[-1][0] // 2, pairs[-1][1] * 2))
    return pairs


def smaller_batch(seen: Shortage) -> Iterator[Advice]:
    """Smaller micro-batches, or shorter sequences where one is a single sample."""
    if seen.phase in {"optimizer", "data", "other"} or not seen.samples:
        return
    held = sum(seen.categories.get(name, 0) for name in _OF_BATCH)
    if held < LARGE * seen.tensors:
        return
    yield from _shorter(seen) if seen.samples == 1 else _accumulate(seen, held)


def _accumulate(seen: Shortage, held: int) -> Iterator[Advice]:
    """A smaller micro-batch, more of them per step."""
    assert seen.samples is not None
    chain = batch_pairs(seen.samples, seen.micro_batches or 1)
    if len(chain) == 1:
        return
    shown = " -> ".join(f"{samples}x{count}" for samples, count in chain)
    action = (
        f"Use smaller micro-batches and accumulate more of them: {shown} (samples x micro-batches)."
    )
    enough = next((pair for pair in chain[1:] if _fits(seen, held, pair[0] / seen.samples)), None)
    if enough is not None and seen.phase == "backward":  # before that, more would be asked for
        action += f" {enough[0]}x{enough[1]} is the first that leaves room for what was refused."
    action += _as_settings(*(enough or chain[1]))
    unknown = "" if seen.micro_batches else "; how many make a step is not on record, 1 is assumed"
    grows = f"{size(held)} of {size(seen.tensors)} in tensors grow with the batch, of"
    yield Advice(
        rule="smaller batch",
        action=action,
        evidence=f"{grows if seen.tensors else 'what a pass needs grows with the batch, of'}"
        f" {seen.samples:,} samples{unknown}",
    )


def _as_settings(samples: int, count: int) -> str:
    """The same pair in the words of the two trainers that most configurations are of."""
    return (
        f" As settings: per_device_train_batch_size={samples},"
        f" gradient_accumulation_steps={count} (transformers), accumulate_grad_batches={count}"
        " (Lightning)."
    )


def _fits(seen: Shortage, held: int, part: float) -> bool:
    """Whether what was refused would fit with this part of the batch, all else being equal."""
    if seen.requested is None or seen.free is None:
        return False
    return seen.requested * part <= seen.free + held * (1 - part)


def _shorter(seen: Shortage) -> Iterator[Advice]:
    if seen.length is not None:
        yield Advice(
            rule="shorter sequences",
            action="Use shorter sequences: the batch is a single sample already.",
            evidence=f"the sample has {seen.length:,} tokens",
        )
