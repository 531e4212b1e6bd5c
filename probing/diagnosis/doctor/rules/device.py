"""Rules about an accelerator: whether it is kept busy, who makes the host wait for it, its memory.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. Without an
accelerator none of them is judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ....units import duration, size
from ..facts import LEAST_STEPS, Facts, Steps, percent
from ..findings import Rule, Sign
from ..hot_lines import HotLine
from ..not_looked_at import NotLookedAt
from .setup import ENVIRONMENT
from .speed import hot_lines_of, in_words

_IDLE = 0.6
"""A device that works for less of a step has room for most of another one."""
_BUSY = 0.7
_MOSTLY = 0.8
_OTHER_WAITS = 0.2
_FEW_STEPS = 3
"""Enough for what is seen by samples of the stack."""
_LEAST_LINE = 0.1
_SURE_LINES = 0.25
_WAITS = re.compile(
    r"\.(?:item|cpu|tolist|numpy)\(\)|\b(?:synchronize|empty_cache|nonzero|print|float|bool|int)\("
    r"|\.to\(\s*['\"]cpu"
)
"""What makes the host wait for all that is queued, as it stands in a script."""
_EMPTIES = re.compile(r"\bempty_cache\(")
_COPIES = re.compile(r"\.(?:to|cuda|copy_)\(")
"""What may copy to the device, which waits for the copy unless the memory is pinned."""
_LEAST_EMPTIED = 0.03
_MOST_COPIED = 0.25
_FRAGMENTED = 1.5
_LARGE = 1 << 30
_NEAR = 0.85
_ON_DEVICE = (
    "SELECT step, sum(device_s) AS device_s FROM python.device_times"
    " WHERE depth = 0 OR stage = 'replay' GROUP BY step ORDER BY step DESC LIMIT 20"
)
"""Few steps are timed: those before the newest tell of them, too."""
_RESERVED = (
    "SELECT step, device, reserved_bytes, device_total_bytes,"
    " max(greatest(allocated_bytes, peak_bytes)) OVER (PARTITION BY device) AS needed_bytes"
    " FROM python.memory WHERE reserved_bytes IS NOT NULL ORDER BY seq DESC LIMIT 400"
)
"""What was needed is of all rows: one long batch may be far back."""
_NO_DEVICE = "no accelerator is in use"


def _steps(facts: Facts, *, least: int = LEAST_STEPS) -> Steps:
    """The newest steps, of a training on an accelerator.

    Args:
        least: How many there must be.

    Raises:
        NotLookedAt: It uses none, or there are too few.
    """
    now = facts.now(least=least)
    if np.isnan(now.column("device_s")).all():
        raise NotLookedAt(_NO_DEVICE)
    return now


def _busy(facts: Facts, now: Steps) -> float | None:
    """For what part of a step modules and optimizers keep the device busy; None: not timed.

    A step that is timed takes the host longer: it is held against the others.
    """
    first = facts.steps.settled().numbers[0]
    seconds = [row["device_s"] for row in facts.rows(_ON_DEVICE) if row["step"] >= first]
    return min(1.0, float(np.median(seconds)) / now.median_s) if seconds else None


def explains(facts: Facts, now: Steps) -> bool:
    """Whether an accelerator explains what the script spends its time on, between the phases.

    The host waits there for a device that is busy, or in lines that other rules tell of.
    """
    if np.isnan(now.column("device_s")).all():
        return False
    busy = _busy(facts, now)
    if busy is not None and busy >= _IDLE:
        return True
    lines = [line for line in hot_lines_of(facts) if line.is_outside][:1]
    return any(_WAITS.search(line.calls) or _COPIES.search(line.source) for line in lines)


def _waits_elsewhere(now: Steps) -> bool:
    """Whether steps wait for data or other ranks, which other rules tell."""
    shares = now.shares()
    return shares["data_wait"] + shares["gradient_sync"] > _OTHER_WAITS


def _host_bound(facts: Facts) -> Iterator[Sign]:
    """The device has done its work before Python has queued the next."""
    now = _steps(facts)
    bound = float(np.nanmean(now.column("host_bound", missing=0.0)))
    busy = _busy(facts, now)
    if busy is None:
        raise NotLookedAt("no step was timed on the device")
    if bound < _MOSTLY or busy > _IDLE or _waits_elsewhere(now):
        return
    yield Sign(
        certainty="possible",
        summary=f"The accelerator waits for Python: it works for {percent(busy)} of a step of"
        f" {duration(now.median_s)}, and had nothing left to do at the end of"
        f" {percent(bound)} of the steps",
        evidence=(
            f"`host_bound` of the last {len(now)} steps, and what modules and optimizers took by"
            " the device's clock",
        ),
        weight=1 - busy,
    )


def _synchronises(facts: Facts) -> Iterator[Sign]:
    """Lines of the script wait for the device, though it is not busy."""
    now = _steps(facts, least=_FEW_STEPS)
    busy = _busy(facts, now)
    lines = [line for line in facts.hot_lines() if _WAITS.search(line.calls)]
    emptied = [line for line in lines if _EMPTIES.search(line.calls)]
    if sum(line.share for line in emptied) >= _LEAST_EMPTIED:
        yield _emptied(emptied)
        return
    if busy is not None and busy > _BUSY:
        return  # the host waits there for what takes its time anyway
    found = [line for line in lines if line.share >= _LEAST_LINE / 2]
    share = sum(line.share for line in found)
    if share < _LEAST_LINE:
        return
    known = busy is not None and busy < _IDLE and not _waits_elsewhere(now)
    yield Sign(
        certainty="likely" if known and share >= _SURE_LINES else "possible",
        summary=f"The script waits for the accelerator for {percent(share)} of the time, most at"
        f" {found[0].place} in {found[0].func}: `{_shown(found[0])}`",
        evidence=(
            *in_words(found[:3]),
            *_works(busy),
        ),
        weight=share,
    )


def _emptied(lines: list[HotLine]) -> Sign:
    """The cache of the allocator is emptied in the loop: what that costs lies elsewhere, too."""
    share = sum(line.share for line in lines)
    return Sign(
        certainty="likely",
        summary=f"The script empties torch's cache of device memory in its loop, at"
        f" {lines[0].place} in {lines[0].func}: {percent(share)} of the time, and the next step"
        " asks the driver for the same memory again",
        evidence=in_words(lines[:3]),
        weight=max(share, _LEAST_LINE),
        fix=_EMPTY_FIX,
    )


def _copies(facts: Facts) -> Iterator[Sign]:
    """The script waits for copies to the device."""
    now = _steps(facts, least=_FEW_STEPS)
    busy = _busy(facts, now)
    if busy is not None and busy > _IDLE:
        return
    found = [line for line in facts.hot_lines() if _COPIES.search(line.source)]
    found = [line for line in found if line.inner == line.func and line.share >= _LEAST_LINE]
    share = sum(line.share for line in found)
    if share < _MOST_COPIED:
        return
    yield Sign(
        certainty="likely" if busy is not None else "possible",
        summary=f"The script waits for copies to the accelerator for {percent(share)} of the time,"
        f" at {found[0].place} in {found[0].func}: `{_shown(found[0])}`",
        evidence=(
            *in_words(found[:3]),
            *_works(busy),
        ),
        weight=share,
    )


def _works(busy: float | None) -> tuple[str, ...]:
    """For what part of a step the device works, where that is known."""
    return () if busy is None else (f"the device works for {percent(busy)} of a step",)


def _shown(line: HotLine) -> str:
    """A line of code that is not too long."""
    text = line.source or line.inner
    return text if len(text) <= 60 else f"{text[:57]}..."


_EMPTY_FIX = (
    "Do not call torch.cuda.empty_cache() in the loop: the next step has to ask the driver for the"
    " same memory again."
)


def _fragmented(facts: Facts) -> Iterator[Sign]:
    """The allocator holds far more of the device than tensors have ever needed."""
    rows = facts.rows(_RESERVED)
    if not rows:
        raise NotLookedAt(_NO_DEVICE)
    last = rows[0]
    own = [row for row in rows if row["device"] == last["device"]]
    needed = last["needed_bytes"] or 0
    held, total = last["reserved_bytes"], last["device_total_bytes"]
    if held < _FRAGMENTED * needed or held - needed < _LARGE:
        return
    is_near = bool(total) and held >= _NEAR * total
    yield Sign(
        certainty="likely" if is_near else "possible",
        summary=f"The memory of {last['device']} is fragmented: torch holds {size(held)}, and"
        f" tensors have had at most {size(needed)} of it at once on record"
        + (f"; the device has {size(total)}" if is_near else ""),
        since_step=next((row["step"] for row in reversed(own) if row["reserved_bytes"] == held),
                        None),
        evidence=(f"{size(held - needed)} are reserved in pieces that did not fit",),
        weight=1 - needed / held,
    )  # fmt: skip


def _tf32(facts: Facts) -> Iterator[Sign]:
    """Matrices of float32 are multiplied without TF32 on a device that has it."""
    environment = facts.environment
    rows = [row for row in facts.live("parameters") if row["trainable"]]
    there = [row for row in rows if row["device"].startswith("cuda")]
    if not there:
        raise NotLookedAt(_NO_DEVICE)
    is_single = any(row["dtype"] == "float32" for row in there)
    if not is_single or environment.get("float32_matmul_precision") != "highest":
        return
    if not facts.rows(_ON_DEVICE):
        raise NotLookedAt("no step was timed on the device, as which autocast is seen")
    if "autocast" in environment:
        return
    yield Sign(
        certainty="possible",
        summary="Matrices of float32 are multiplied without TF32",
        evidence=("torch.get_float32_matmul_precision() is highest",),
        weight=0.2,
    )


RULES = (
    Rule(
        name="synchronises",
        group="slow",
        subject="accelerator",
        symptom="The accelerator idles in each step while the script looks at a number of it.",
        evidence="Samples of the training thread at lines that wait for the device: .item(),"
        " .cpu(), .tolist(), print, synchronize, empty_cache; a tenth of the time, likely from a"
        f" quarter, while the device works for less than {percent(_IDLE)} of a step.",
        certainty="likely",
        gravity=43,
        fix="Look at numbers of the device every few dozen steps only, or one step late; copy with"
        " non_blocking=True from pinned memory.",
        source="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        next="probing ENDPOINT profile --steps 1",
        look=_synchronises,
        cost_s=2.0,
    ),
    Rule(
        name="blocking-copies",
        group="slow",
        subject="accelerator",
        symptom="The accelerator idles in each step while a batch is copied to it.",
        evidence="Samples of the training thread at lines that copy: .to(), .cuda(), .copy_(); a"
        f" quarter of the time, while the device works for less than {percent(_IDLE)} of a step.",
        certainty="likely",
        gravity=44,
        fix="Copy from pinned memory (pin_memory=True) with non_blocking=True, a batch ahead, and"
        " in a smaller dtype.",
        source="https://pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        next="probing ENDPOINT profile --steps 1",
        look=_copies,
        cost_s=2.0,
    ),
    Rule(
        name="host-bound",
        group="slow",
        subject="accelerator",
        symptom="A faster accelerator makes the training no faster.",
        evidence="`host_bound` of python.steps in four of five steps, and `device_s` of"
        f" python.device_times: less than {percent(_IDLE)} of a step. A small model looks so.",
        certainty="possible",
        gravity=35,
        fix="Make fewer and larger operations: a larger batch, torch.compile, CUDA graphs, fused"
        " optimizers.",
        source="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        next="probing ENDPOINT profile --steps 1",
        look=_host_bound,
    ),
    Rule(
        name="fragmentation",
        group="memory",
        subject="accelerator",
        symptom="Out of memory, though much of what is reserved is unallocated.",
        evidence="`reserved_bytes` of python.memory: half as much again as the highest peak of what"
        " was allocated, and 1 GiB more; likely where that is most of the device.",
        certainty="likely",
        gravity=46,
        fix="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and run the largest batch"
        " first.",
        source="https://pytorch.org/docs/stable/notes/cuda.html",
        next="probing ENDPOINT memory",
        asks=(_RESERVED,),
        look=_fragmented,
    ),
    Rule(
        name="tf32-off",
        group="slow",
        subject="set-up",
        symptom="Matrix products take several times as long as the device needs.",
        evidence="float32 parameters on an accelerator, float32_matmul_precision is highest, and"
        " autocast was seen in none of the steps that were timed on the device.",
        certainty="possible",
        gravity=36,
        fix="torch.set_float32_matmul_precision('high'), or bfloat16 by autocast.",
        source="https://pytorch.org/docs/stable/notes/cuda.html",
        next=ENVIRONMENT,
        look=_tf32,
    ),
)
