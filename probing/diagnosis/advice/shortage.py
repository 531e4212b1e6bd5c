"""What to do about memory that ran out: rules over what was seen at the moment of the error.

Rules of this file: see the package. Thresholds are fractions of what there was in all. The order is
that of what may help most: what would have been enough alone, then what the largest part of the
memory was used for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...units import percent, size
from .batch import smaller_batch
from .record import Advice
from .seen import LARGE, Shortage

FRAGMENTED = 0.1
"""Memory that the allocator holds and cannot hand out, as a part of the device."""
FOREIGN = 0.1
"""Memory of the device that this process's allocator does not hold, as a part of it."""
STEADY = 0.9
"""How well a straight line must fit the memory at the ends of steps (R²) to be called growth."""
GREW = 0.1
"""And by which part of all memory it must have grown."""
FEWEST_STEPS = 20
NOT_TENSORS = 0.5
"""The part of the resident set that is no tensors, from which on it is worth a look."""


def advise(seen: Shortage) -> tuple[Advice, ...]:
    """What to do, what may help most first."""
    by_size = sorted(seen.categories, key=lambda name: seen.categories[name], reverse=True)
    of_category = [rule for name in by_size for rule in _OF_CATEGORY.get(name, ())]
    found: dict[str, Advice] = {}
    for rule in (*_FIRST, *of_category, *_LAST):
        for advice in rule(seen):
            found.setdefault(advice.rule, advice)
    return tuple(found.values())


def _too_large(seen: Shortage) -> Iterator[Advice]:
    if seen.requested is not None and seen.total is not None and seen.requested > seen.total:
        yield Advice(
            rule="too large",
            action="Look at the shapes where it failed: one tensor of this size fits nowhere here,"
            " whatever else is freed.",
            evidence=f"it asked for {size(seen.requested)} at once; there are"
            f" {size(seen.total)} in all",
        )


def _fragmentation(seen: Shortage) -> Iterator[Advice]:
    if seen.allocated is None or seen.reserved is None or seen.requested is None:
        return
    unused = seen.reserved - seen.allocated
    if seen.total and unused >= seen.requested and unused >= FRAGMENTED * seen.total:
        yield Advice(
            rule="fragmentation",
            action="Set PYTORCH_ALLOC_CONF=expandable_segments:True in the environment (before"
            " torch 2.11: PYTORCH_CUDA_ALLOC_CONF).",
            evidence=f"the allocator held {size(unused)} that it could not hand out in one piece,"
            f" more than the {size(seen.requested)} asked for",
        )


def _foreign(seen: Shortage) -> Iterator[Advice]:
    if seen.is_host or seen.total is None or seen.free is None or seen.reserved is None:
        return
    foreign = seen.total - seen.free - seen.reserved
    if foreign >= FOREIGN * seen.total:
        yield Advice(
            rule="others",
            action="See which other processes use the device (`nvidia-smi`), and end those that"
            " should be gone.",
            evidence=f"{size(foreign)} of {size(seen.total)} were held by other programs, or by"
            " libraries outside of torch's allocator",
        )


def _leak(seen: Shortage) -> Iterator[Advice]:
    trend, whole = seen.trend, seen.total or seen.resident
    if trend is None or whole is None or trend.steps < FEWEST_STEPS or trend.fit < STEADY:
        return
    if trend.per_step * trend.steps >= GREW * whole:
        yield Advice(
            rule="leak",
            action="Find what is kept from step to step first: `probing PID leak` while it runs."
            " Often a loss that is kept with its graph (use `loss.item()`), outputs in a list, or"
            " a missing zero_grad().",
            evidence=f"memory grew by {size(trend.per_step)} per step over the last"
            f" {trend.steps:,} steps, along a straight line (R² {trend.fit:.2f})",
        )


def _workers(seen: Shortage) -> Iterator[Advice]:
    if seen.is_host and (seen.phase == "data" or "DataLoader worker" in seen.error):
        yield Advice(
            rule="workers",
            action="Lower num_workers and prefetch_factor of the DataLoader: each worker has a copy"
            " of what the dataset touches, and holds its batches.",
            evidence="memory ran out while a batch was made",
        )


def _address_space(seen: Shortage) -> Iterator[Advice]:
    if seen.bounded_by == "address_space" and seen.total is not None:
        yield Advice(
            rule="address space",
            action="Raise `ulimit -v` where the job is started, if it was not meant to bound it.",
            evidence=f"the limit of the address space, {size(seen.total)}, is what was reached, not"
            " the memory of the machine",
        )


def _cgroup(seen: Shortage) -> Iterator[Advice]:
    if seen.bounded_by == "cgroup" and seen.total is not None:
        yield Advice(
            rule="cgroup",
            action="Raise the limit where the job is started, if the machine has more: `docker run"
            " --memory`, `resources.limits.memory` of Kubernetes, `--mem` of Slurm.",
            evidence=f"the limit of its cgroup, {size(seen.total)}, is what was reached, not the"
            " memory of the machine",
        )


def _look_earlier(seen: Shortage) -> Iterator[Advice]:
    if seen.is_kill:
        yield Advice(
            rule="look earlier",
            action="Ask the next run before it gets there: `probing PID memory` says what its"
            " tensors are for, python.host_memory what it and its data workers hold beside them.",
            evidence="the kernel kills without a word, so what was in memory is not on record",
        )


def _checkpointing(seen: Shortage) -> Iterator[Advice]:
    if seen.is_large("activations"):
        yield Advice(
            rule="checkpointing",
            action="Recompute activations instead of keeping them: wrap each block in"
            " torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False), or with"
            " transformers call model.gradient_checkpointing_enable().",
            evidence=_of_tensors(seen, "activations"),
        )


def _mixed_precision(seen: Shortage) -> Iterator[Advice]:
    if seen.is_large("activations") and seen.dtypes.get("activations") == "float32":
        device = "cpu" if seen.is_host else "cuda"
        yield Advice(
            rule="mixed precision",
            action=f'Run the forward pass under torch.autocast("{device}", torch.bfloat16): half'
            " the bytes for most activations. As a setting: bf16=True (transformers),"
            ' precision="bf16-mixed" (Lightning).',
            evidence=f"{_of_tensors(seen, 'activations')}, most of them float32",
        )


def _optimizer_state(seen: Shortage) -> Iterator[Advice]:
    if seen.is_large("optimizer_state"):
        ranks = seen.world_size or 1
        shard = (
            f"Shard it over the {ranks} ranks (fully_shard, or ZeroRedundancyOptimizer), or use"
            if ranks > 1
            else "Use"
        )
        yield Advice(
            rule="optimizer state",
            action=f"{shard} an optimizer with a smaller state: 8-bit Adam (bitsandbytes,"
            " torchao), Adafactor, or SGD.",
            evidence=_of_tensors(seen, "optimizer_state"),
        )


def _first_step(seen: Shortage) -> Iterator[Advice]:
    if seen.phase == "optimizer" and not seen.is_large("optimizer_state"):
        yield Advice(
            rule="first step",
            action="Leave room for the optimizer's state, which is made in its first step: Adam's"
            " takes twice the bytes of the parameters. If there is none, take an optimizer with a"
            " smaller state, or shard it over more ranks.",
            evidence="it failed in the optimizer's step; the state had"
            f" {size(seen.categories.get('optimizer_state', 0))} then, the parameters"
            f" {size(seen.categories.get('parameters', 0))}",
        )


def _gradients(seen: Shortage) -> Iterator[Advice]:
    if seen.is_large("gradients"):
        early = seen.phase in {"forward", "loss"}
        yield Advice(
            rule="gradients",
            action="Call optimizer.zero_grad() before the forward pass, so that the old gradients"
            " are gone by then (not where they are accumulated)."
            if early
            else "Shard gradients over the ranks (fully_shard), or train fewer parameters.",
            evidence=_of_tensors(seen, "gradients"),
        )


def _parameters(seen: Shortage) -> Iterator[Advice]:
    if seen.is_large("parameters"):
        half = seen.dtypes.get("parameters") == "float32"
        yield Advice(
            rule="parameters",
            action="Shard the parameters (fully_shard), train adapters (LoRA) instead of all of"
            f" them{', or keep them in bfloat16' if half else ''}.",
            evidence=_of_tensors(seen, "parameters"),
        )


def _loss(seen: Shortage) -> Iterator[Advice]:
    if seen.phase == "loss":
        yield Advice(
            rule="loss",
            action="Compute the loss in pieces along the tokens, or with a fused cross-entropy: the"
            " scores of a large vocabulary are often the largest tensor of all.",
            evidence="it failed after the model's call and before the backward pass"
            + (f", asking for {size(seen.requested)}" if seen.requested else ""),
        )


def _kept(seen: Shortage) -> Iterator[Advice]:
    for category in ("other", "temporary"):
        if seen.is_large(category):
            yield Advice(
                rule="kept tensors",
                action="See who holds these tensors: they are of no module, optimizer or graph."
                " While it runs, `probing PID leak` names what refers to them.",
                evidence=_of_tensors(seen, category),
            )


def _not_tensors(seen: Shortage) -> Iterator[Advice]:
    if not seen.is_host or seen.resident is None or not seen.categories:
        return
    rest = seen.resident - seen.tensors
    if rest >= NOT_TENSORS * seen.resident and seen.total and rest >= LARGE * seen.total:
        yield Advice(
            rule="not tensors",
            action="Look at what is no tensor: datasets and caches in Python lists, arrays of"
            " numpy, libraries.",
            evidence=f"{size(rest)} of the {size(seen.resident)} resident are no tensors",
        )


def _of_tensors(seen: Shortage, category: str) -> str:
    """How much of the tensors' memory a category takes."""
    name = category.replace("_", " ")
    part = f"{percent(seen.share(category), digits=0)} of {size(seen.tensors)} in tensors"
    return f"{name} take {size(seen.categories.get(category, 0))}, {part}"


Rule = Callable[[Shortage], Iterator[Advice]]

_FIRST: tuple[Rule, ...] = (
    _too_large,
    _fragmentation,
    _leak,
    _foreign,
    _workers,
    _loss,
    _first_step,
)
_OF_CATEGORY: dict[str, tuple[Rule, ...]] = {
    "activations": (smaller_batch, _checkpointing, _mixed_precision),
    "inputs": (smaller_batch,),
    "temporary": (smaller_batch, _kept),
    "optimizer_state": (_optimizer_state,),
    "gradients": (_gradients,),
    "parameters": (_parameters,),
    "other": (_kept,),
}
_LAST: tuple[Rule, ...] = (smaller_batch, _not_tensors, _address_space, _cgroup, _look_earlier)
