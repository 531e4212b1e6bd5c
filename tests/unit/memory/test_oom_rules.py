"""What is taken for an out-of-memory error, what is advised, and what is said of an ending."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from probing.agent.sources.out_of_memory.errors import read_oom
from probing.diagnosis.advice import Advice, Shortage, Trend, advise, batch_pairs
from probing.postmortem.endings import judge
from probing.postmortem.kernel_log import kernel_kills, read_kernel_log
from probing.postmortem.memory_signs import CgroupNow

pytestmark = pytest.mark.anypython

GIB = 1 << 30
CPU_TEXT = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory:"
    " you tried to allocate 100663296 bytes. Error code 12 (Cannot allocate memory)"
)

ERRORS: list[tuple[BaseException, bool, int | None]] = [
    (RuntimeError(CPU_TEXT), True, 100663296),
    (MemoryError(), True, None),
    (MemoryError("Unable to allocate 7.45 GiB for an array with shape (1000000000,)"), True,
     round(7.45 * GIB)),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), True, None),
    (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be ..."), False, None),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), False,
     None),
    (RuntimeError("HIP error: out of memory\nCompile with `TORCH_USE_HIP_DSA` ..."), False, None),
    (RuntimeError("NCCL error ...\nLast error:\nCuda failure 2 'out of memory'"), False, None),
]  # fmt: skip
OTHERS: list[BaseException] = [
    RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x8 and 9x4)"),
    RuntimeError("the memory is fine"),
    RuntimeError(),
    RecursionError("maximum recursion depth exceeded"),
    OSError(errno.ENOSPC, "No space left on device"),
    ValueError(CPU_TEXT),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize(("error", "is_host", "requested"), ERRORS, ids=str)
def test_an_error_for_want_of_memory(
    error: BaseException, is_host: bool, requested: int | None
) -> None:
    """Each kind is known, says whose memory it was, and how much was asked for if it tells."""
    found = read_oom(error)
    assert found is not None
    assert (found.is_host, found.requested) == (is_host, requested)
    assert found.text.startswith(type(error).__name__)
    assert "\n" not in found.text


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_any_other_error(error: BaseException) -> None:
    """A RuntimeError is no out-of-memory error, nor is a text of one in another class."""
    assert read_oom(error) is None


def test_an_exception_that_misbehaves() -> None:
    """Nothing of its own is run to read it."""

    class Silent(RuntimeError):
        def __str__(self) -> str:
            raise AssertionError("it was asked")

    assert read_oom(Silent(CPU_TEXT)) is not None


FULL = Shortage(
    is_host=False,
    phase="backward",
    bounded_by="device",
    requested=2 * GIB,
    free=GIB,
    total=80 * GIB,
    allocated=76 * GIB,
    reserved=77 * GIB,
    categories={"activations": 60 * GIB, "parameters": 10 * GIB, "optimizer_state": 6 * GIB},
    dtypes={"activations": "float32", "parameters": "bfloat16"},
    samples=64,
    length=2048,
    micro_batches=1,
    world_size=8,
)
"""A device full of activations: each case below changes one thing."""


def rules(**changes: Any) -> list[str]:
    """Which rules speak of a changed case, in their order."""
    return [advice.rule for advice in advise(dataclasses.replace(FULL, **changes))]


def the(rule: str, **changes: Any) -> Advice:
    """The suggestion of one rule."""
    found = [a for a in advise(dataclasses.replace(FULL, **changes)) if a.rule == rule]
    assert len(found) == 1, f"{rule} is not among {rules(**changes)}"
    return found[0]


def test_the_largest_category_comes_first() -> None:
    """Advice follows what takes most, and leaves out what takes little."""
    assert rules() == ["smaller batch", "checkpointing", "mixed precision"]
    state = {"optimizer_state": 60 * GIB, "parameters": 30 * GIB, "activations": GIB}
    assert rules(categories=state) == ["optimizer state", "parameters"]
    both = {"gradients": 40 * GIB, "activations": 30 * GIB}
    assert rules(categories=both)[0] == "gradients"


def test_pairs_of_samples_and_micro_batches_keep_the_product() -> None:
    """Halves with twice as many, as long as they are whole; the first that fits is named."""
    assert batch_pairs(64, 1)[:3] == [(64, 1), (32, 2), (16, 4)]
    assert batch_pairs(6, 2) == [(6, 2), (3, 4)]
    assert all(a * b == 128 for a, b in batch_pairs(64, 2))
    advice = the("smaller batch")
    assert "64x1 -> 32x2 -> 16x4" in advice.action
    assert "32x2 is the first" in advice.action
    assert "per_device_train_batch_size=32, gradient_accumulation_steps=2 " in advice.action
    assert "accumulate_grad_batches=2 " in advice.action
    assert "of 64 samples" in advice.evidence
    tight = the("smaller batch", requested=40 * GIB, free=0)
    assert "32x2 is the first" in tight.action  # half of 40 fits into half of 60
    assert "is the first" not in the("smaller batch", phase="forward").action
    assert "1 is assumed" in the("smaller batch", micro_batches=None).evidence


def test_a_batch_that_cannot_be_halved() -> None:
    """A single sample can only be shorter; an odd number gives no pairs."""
    assert rules(samples=1)[0] == "shorter sequences"
    assert "smaller batch" not in rules(samples=1, length=None)
    assert "smaller batch" not in rules(samples=7)
    assert "smaller batch" not in rules(samples=None)
    assert "smaller batch" not in rules(phase="optimizer")


def test_mixed_precision_is_for_what_is_not_mixed_yet() -> None:
    """Activations that are half as wide already need none."""
    assert "mixed precision" not in rules(dtypes={"activations": "bfloat16"})


def test_expandable_segments_only_when_fragmentation_says_so() -> None:
    """What the allocator holds back must cover the request, and be a tenth of the device."""
    assert rules(allocated=60 * GIB)[0] == "fragmentation"
    assert "17.0 GiB" in the("fragmentation", allocated=60 * GIB).evidence
    assert "fragmentation" not in rules(allocated=70 * GIB)  # 7 GiB of 80
    assert "fragmentation" not in rules(allocated=60 * GIB, requested=20 * GIB)
    assert "fragmentation" not in rules(allocated=None, reserved=None)


def test_others_on_the_device() -> None:
    """Memory of the device that is neither free nor the allocator's belongs to somebody else."""
    assert "others" in rules(allocated=50 * GIB, reserved=50 * GIB)
    assert "others" not in rules()


def test_the_optimizers_first_step() -> None:
    """Without much state yet, it is the state in the making that does not fit."""
    early = {"parameters": 40 * GIB, "gradients": 38 * GIB}
    assert rules(phase="optimizer", categories=early)[0] == "first step"
    assert "first step" not in rules(phase="optimizer", categories={"optimizer_state": 60 * GIB})
    assert "8 ranks" in the("optimizer state", categories={"optimizer_state": GIB}).action
    alone = the("optimizer state", categories={"optimizer_state": GIB}, world_size=1)
    assert alone.action.startswith("Use an optimizer")


def test_growth_from_step_to_step_is_a_leak() -> None:
    """Only along a straight line, over enough steps, and by a part of all memory."""
    leak = Trend(steps=100, per_step=0.2 * GIB, fit=0.99)
    assert rules(trend=leak)[0] == "leak"
    for other in (
        dataclasses.replace(leak, fit=0.5),
        dataclasses.replace(leak, steps=5),
        dataclasses.replace(leak, per_step=0.001 * GIB),
    ):
        assert "leak" not in rules(trend=other)


def test_the_loss_and_what_is_too_large() -> None:
    """Outside of any module it is the loss; what is larger than everything fits nowhere."""
    assert rules(phase="loss")[0] == "loss"
    assert rules(requested=100 * GIB)[0] == "too large"


def test_the_memory_of_the_host() -> None:
    """Workers, what is no tensor, and the limit of the address space are the host's alone."""
    host = {"is_host": True, "allocated": None, "reserved": None, "resident": 70 * GIB}
    small = {"parameters": GIB}
    found = rules(**host, phase="data", bounded_by="machine", categories=small, samples=None)
    assert found == ["workers", "parameters", "not tensors"]
    assert rules(**host, bounded_by="address_space")[-1] == "address space"
    assert not {"workers", "not tensors", "address space"} & set(rules())


def test_nothing_measured_nothing_claimed() -> None:
    """Of an error of which nothing is known, nothing is said."""
    assert advise(Shortage(is_host=True, phase="other")) == ()


LAST = {
    "step": 12,
    "phase": "after_forward",
    "cgroup_bytes": 95,
    "cgroup_limit_bytes": 100,
    "cgroup_oom_kills": 0,
    "node_used_bytes": 500,
    "node_total_bytes": 1000,
}
KMSG = (
    "4,944,5000000,-; oom_kill_process.cold+0x8/0x8a",
    "3,1015,5000100,-;Memory cgroup out of memory: Killed process 42 (python) total-vm:1115180kB",
    "3,1016,7000100,-;Out of memory: Killed process 43 (python3) total-vm:99kB, UID:0",
    " SUBSYSTEM=memory",
)


def test_the_kernels_own_words_are_certain() -> None:
    """A line about this very process says what ended it; one from before its time is another's."""
    kills = kernel_kills(KMSG)
    assert [(kill.pid, kill.is_cgroup) for kill in kills] == [(42, True), (43, False)]
    assert [kill.when_s for kill in kills] == pytest.approx([5.0001, 7.0001])
    by_cgroup, by_machine = judge(42, [LAST], kills, None), judge(43, [], kills, None)
    assert "its cgroup reached its limit" in by_cgroup.certain[1]
    assert "the machine's memory ran out" in by_machine.certain[1]
    assert by_cgroup.likely == ()
    later = judge(42, [], kills, None, started_s=6.0)
    assert len(later.certain) == 1


@pytest.mark.parametrize(
    ("changes", "cgroup", "words"),
    [
        ({}, None, ["its cgroup reached its limit. It held 95 B of 100 B, with cached files"]),
        ({}, CgroupNow(limit=99, kills=0), ["its cgroup reached its limit"]),  # not its own
        ({"cgroup_cache_bytes": 3}, None, ["It held 92 B of 100 B, without cached files"]),
        ({"cgroup_cache_bytes": 20}, None, []),
        ({"cgroup_bytes": 80}, None, []),
        ({"cgroup_limit_bytes": None}, None, []),
        ({"cgroup_bytes": None, "cgroup_oom_kills": None}, CgroupNow(limit=100, kills=3), []),
        ({"cgroup_bytes": 1}, CgroupNow(limit=100, kills=2), ["has killed 2 more since"]),
        ({"cgroup_bytes": 1}, CgroupNow(limit=99, kills=2), []),
        ({"cgroup_limit_bytes": None}, CgroupNow(limit=None, kills=2), []),
        ({"cgroup_bytes": 1, "node_used_bytes": 960}, None, ["the machine's memory ran out"]),
    ],
)
def test_what_is_likely_follows_from_the_last_rows(
    changes: dict[str, Any], cgroup: CgroupNow | None, words: list[str]
) -> None:
    """Close to a limit, or the kernel's count of kills: likely; without either, nothing."""
    ending = judge(7, [{**LAST, **changes}], kernel_kills(KMSG), cgroup)
    assert ending.was_killed
    assert len(ending.certain) == 1
    assert len(ending.likely) == len(words)
    assert all(word in sentence for word, sentence in zip(words, ending.likely, strict=True))
    assert [one.startswith("Likely: ") for one in ending.sentences] == [
        False,
        *(True for _ in words),
    ]


def test_a_full_cgroup_that_counts_no_kill_is_no_reason() -> None:
    """Files that are cached fill it, too: somebody else has killed the process."""
    ending = judge(7, [LAST], [], CgroupNow(limit=100, kills=0))
    assert "counts no kill" in ending.certain[1]
    assert (ending.likely, ending.by_memory, ending.by_cgroup) == ((), False, False)


def test_kills_that_were_counted_while_it_ran() -> None:
    """A count that grows within its last rows is told, with by how much."""
    rows = [{**LAST, "cgroup_bytes": 1, "cgroup_oom_kills": count} for count in (4, 2, 1)]
    (sentence,) = judge(7, rows, [], None).likely
    assert "3 in its last rows" in sentence


NEWEST = "6,9,5000000,-;Out of memory: Killed process 7 (python)\n"


def test_the_newest_kill_is_found_in_a_long_log(tmp_path: Path) -> None:
    """The log is read from its oldest line on, and what is left out is what came first."""
    log = tmp_path / "kmsg"
    log.write_text(f"{'6,1,1000,-;eth0: link':<63}\n" * 20_500 + NEWEST)
    lines = read_kernel_log(str(log))
    assert len(lines) == 20_000
    assert [kill.pid for kill in kernel_kills(lines)] == [7]


def test_lines_that_are_overwritten_meanwhile_end_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says EPIPE once, and goes on with the oldest line that it still has."""
    log = tmp_path / "kmsg"
    log.write_text(NEWEST)
    read, errors = os.read, [BrokenPipeError(errno.EPIPE, "Broken pipe")]

    def read_after_errors(fd: int, size: int) -> bytes:
        if errors:
            raise errors.pop()
        return read(fd, size)

    monkeypatch.setattr(os, "read", read_after_errors)
    assert read_kernel_log(str(log)) == [NEWEST.strip()]
