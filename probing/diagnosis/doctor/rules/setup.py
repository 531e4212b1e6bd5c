"""Rules about how the training was set up: switches, threads, types.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ..facts import Facts, percent
from ..findings import Rule, Sign
from ..not_looked_at import NotLookedAt

_LOOK_S = 2.0
_MANY_FRAMES = 8
_LAYOUTS_S = 3.0
_LARGE_OPTIMIZER = 0.25
_MANY_TENSORS = 50
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Those that torch has as one kernel, on a CPU, too."""


def _threads(facts: Facts) -> Iterator[Sign]:
    """Torch computes with more threads than there are processors."""
    environment = facts.environment
    threads, cpus = int(environment.get("num_threads", 0)), int(environment.get("cpus", 0))
    if not cpus or threads <= cpus:
        return
    yield Sign(
        certainty="certain",
        summary=f"torch computes with {threads} threads on {cpus} processor"
        f"{'' if cpus == 1 else 's'}: they get into each other's way in every operation",
        evidence=(f"torch.get_num_threads() is {threads}; the process may use {cpus} processors",),
        weight=0.5,
        fix=f"Set OMP_NUM_THREADS={cpus}, or torch.set_num_threads({cpus}).",
    )


def _anomaly(facts: Facts) -> Iterator[Sign]:
    """Autograd's anomaly detection is on."""
    if facts.environment.get("anomaly_detection") != "True":
        return
    yield Sign(
        certainty="certain",
        summary="The anomaly detection of autograd is on: each operation keeps its stack, and each"
        " gradient is searched for NaN",
        evidence=("torch.is_anomaly_enabled() is True",),
        weight=0.5,
    )


def _profiler(facts: Facts) -> Iterator[Sign]:
    """A profiler of the script is recording."""
    if facts.environment.get("profiler") != "True":
        return
    yield Sign(
        certainty="likely",
        summary="A torch profiler of the script records right now: steps are slower, and its events"
        " fill the memory until it ends",
        evidence=("torch.autograd.profiler is enabled",),
        weight=0.5,
    )


def _recompiling(facts: Facts) -> Iterator[Sign]:
    """torch.compile compiles again and again."""
    before = facts.environment.get("compiled_frames")
    if before is None or int(before) < 2:
        return
    time.sleep(_LOOK_S)
    after = facts.ask("compiled frames", lambda: _frames(facts))
    new = after - int(before)
    if new <= 0 and int(before) < _MANY_FRAMES:
        return
    yield Sign(
        certainty="likely" if new > 0 else "possible",
        summary=f"torch.compile has compiled {after} pieces of code"
        + (f", {new} of them in the last {_LOOK_S:.0f} s: it compiles again and again" if new
           else ""),
        evidence=('the counter "unique_graphs" of torch._dynamo',),
        weight=1.0 if new > 0 else 0.2,
    )  # fmt: skip


def _frames(facts: Facts) -> int:
    rows = facts.process.live("environment").dicts()
    return int(next(row["value"] for row in rows if row["name"] == "compiled_frames"))


def _unread(facts: Facts) -> Iterator[Sign]:
    """A timeout of collectives is set by a variable that neither torch nor NCCL reads."""
    value = facts.environment.get("NCCL_TIMEOUT")
    if value is None:
        return
    yield Sign(
        certainty="possible",
        summary=f"NCCL_TIMEOUT={value} has no effect: neither torch nor NCCL reads it, so the"
        " timeout of collectives is that of the process group, 10 or 30 minutes by default",
        evidence=("the variable is in the process's environment",),
        weight=0.1,
    )


def _float64(facts: Facts) -> Iterator[Sign]:
    """A model computes in float64."""
    rows = [row for row in facts.live("parameters") if row["trainable"]]
    total = sum(row["numel"] or 0 for row in rows)
    double = sum(row["numel"] or 0 for row in rows if row["dtype"] == "float64")
    if not total or double < total / 2:
        return
    yield Sign(
        certainty="possible",
        summary=f"The model computes in float64: {percent(double / total)} of its parameters, twice"
        " the memory and less than half the speed of float32",
        evidence=("`dtype` of python.parameters",),
        weight=0.5,
    )


def _unfused(facts: Facts) -> Iterator[Sign]:
    """The optimizer goes through many small tensors one by one."""
    now = facts.now()
    share = now.shares()["optimizer"]
    if share < _LARGE_OPTIMIZER:
        return
    rows = [row for row in facts.live("optimizers") if row["optimizer"] in _FUSED]
    slow = [row for row in rows if _is_loop(row)]
    tensors = sum(row["tensors"] for row in slow)
    if tensors < _MANY_TENSORS:
        return
    name = slow[0]["optimizer"]
    yield Sign(
        certainty="possible",
        summary=f"{name} takes {percent(share)} of each step: it goes through {tensors} tensors one"
        " by one",
        evidence=(f"`implementation` of python.optimizers is {slow[0]['implementation']}, on"
                  f" {slow[0]['device']}",),
        weight=share,
        fix=f"Make it with torch.optim.{name}(..., fused=True).",
    )  # fmt: skip


def _is_loop(row: dict[str, Any]) -> bool:
    """Whether a group is stepped tensor by tensor."""
    is_default = row["implementation"] == "default" and row["device"] == "cpu"
    return bool(row["implementation"] == "for-loop" or is_default)


def _channels_last(facts: Facts) -> Iterator[Sign]:
    """A model lies with its channels last, and what comes to its convolutions does not."""
    rows = [row for row in facts.live("parameters") if row["optimizers"] and row["layout"]]
    if not any(row["layout"] == "channels_last" for row in rows):
        return
    own = {(row["model"], row["parameter"].rpartition(".")[0]) for row in rows}
    called = facts.ask("layouts", lambda: facts.process.live("modules", wait_s=_LAYOUTS_S).dicts())
    convolutions = [row for row in called if (row["model"], row["module"]) in own]
    given = [row for row in convolutions if row["input_layout"] is not None]
    lost = [row for row in given if row["input_layout"] == "contiguous"]
    if not lost or lost == given[:1]:
        return  # the batch alone: the first convolution puts it right
    yield Sign(
        certainty="likely" if 2 * len(lost) >= len(given) else "possible",
        summary=f"Channels-last is lost on the way: the weights lie so, and"
        f" {len(lost)} of {len(given)} convolutions are given tensors that do not, first"
        f" {lost[0]['module']} ({lost[0]['class']})",
        evidence=("`input_layout` of python.modules, in one forward pass",),
        weight=len(lost) / len(given),
    )


def _tf32(facts: Facts) -> Iterator[Sign]:
    """Matrices of float32 are multiplied without TF32 on a device that has it."""
    environment = facts.environment
    if not environment.get("device", "").startswith("cuda"):
        raise NotLookedAt("no accelerator is in use")
    rows = [row for row in facts.live("parameters") if row["trainable"]]
    is_single = any(row["dtype"] == "float32" and row["device"].startswith("cuda") for row in rows)
    if not is_single or environment.get("float32_matmul_precision") != "highest":
        return
    yield Sign(
        certainty="possible",
        summary="Matrices of float32 are multiplied without TF32",
        evidence=("torch.get_float32_matmul_precision() is highest",),
        weight=0.2,
    )


_ENVIRONMENT = (
    "probing ENDPOINT query \"SELECT name, value FROM python.environment WHERE kind IN ('torch',"
    " 'place')\""
)
RULES = (
    Rule(
        name="too-many-threads",
        group="slow",
        subject="set-up",
        symptom="All processors are busy, and each operation takes longer than on one.",
        evidence="`num_threads` of python.environment above the processors that the process may"
        " use.",
        certainty="certain",
        gravity=45,
        fix="Set OMP_NUM_THREADS to the number of processors.",
        source="https://pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html",
        next=_ENVIRONMENT,
        look=_threads,
    ),
    Rule(
        name="anomaly-detection",
        group="slow",
        subject="set-up",
        symptom="Forward and backward passes are several times slower than they need be.",
        evidence="torch.is_anomaly_enabled().",
        certainty="certain",
        gravity=47,
        fix="Remove torch.autograd.set_detect_anomaly(True) and detect_anomaly(): `probing PID arm"
        " nan` looks at some steps instead.",
        source="https://pytorch.org/docs/stable/autograd.html",
        next=_ENVIRONMENT,
        look=_anomaly,
    ),
    Rule(
        name="profiler-on",
        group="slow",
        subject="set-up",
        symptom="Steps are slow, and memory grows with each.",
        evidence="torch's profiler is enabled at the moment of the look, by the script.",
        certainty="likely",
        gravity=47,
        fix="Give the profiler a schedule(wait, warmup, active, repeat), or remove it.",
        source="https://pytorch.org/docs/stable/profiler.html",
        next=_ENVIRONMENT,
        look=_profiler,
    ),
    Rule(
        name="recompiling",
        group="slow",
        subject="compilation",
        symptom="Some steps take seconds, again and again.",
        evidence="The number of graphs that torch.compile has made grows between two looks; only"
        f" possible from {_MANY_FRAMES} graphs on.",
        certainty="likely",
        gravity=46,
        fix="Pad batches to a few lengths, or compile with dynamic=True; TORCH_LOGS=recompiles says"
        " why.",
        source="https://pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
        next=_ENVIRONMENT,
        look=_recompiling,
        cost_s=2.0,
    ),
    Rule(
        name="unread-variables",
        group="stops",
        subject="set-up",
        symptom="A job that hangs ends earlier or later than it was told to.",
        evidence="NCCL_TIMEOUT is set. torch takes the time from the process group, and NCCL has"
        " no variable of that name.",
        certainty="possible",
        gravity=15,
        fix="Give it in the script:"
        " init_process_group(..., timeout=datetime.timedelta(minutes=30)).",
        source="https://docs.pytorch.org/docs/stable/distributed.html",
        next=_ENVIRONMENT,
        look=_unread,
    ),
    Rule(
        name="float64",
        group="slow",
        subject="set-up",
        symptom="Twice the memory and half the speed that one is used to.",
        evidence="`dtype` of python.parameters: half of the trainable numbers. It may be meant.",
        certainty="possible",
        gravity=38,
        fix="Convert the data that comes from numpy: torch.from_numpy(x).float().",
        next='probing ENDPOINT query "SELECT parameter, dtype FROM python.parameters"',
        look=_float64,
    ),
    Rule(
        name="unfused-optimizer",
        group="slow",
        subject="set-up",
        symptom="The optimizer takes as long as a forward pass.",
        evidence=f"`optimizer_s` of python.steps is {percent(_LARGE_OPTIMIZER)} of the time, and"
        f" `implementation` of python.optimizers a loop over {_MANY_TENSORS} tensors or more.",
        certainty="possible",
        gravity=33,
        fix="Make the optimizer with fused=True.",
        source="https://pytorch.org/docs/stable/optim.html",
        next='probing ENDPOINT query "SELECT optimizer, implementation, tensors, device'
        ' FROM python.optimizers"',
        look=_unfused,
    ),
    Rule(
        name="channels-last-lost",
        group="slow",
        subject="set-up",
        symptom="A model in channels-last is no faster, or slower, than it was before.",
        evidence="`layout` of python.parameters is channels_last, and `input_layout` of"
        " python.modules contiguous for convolutions behind the first; likely for half of them.",
        certainty="likely",
        gravity=32,
        fix="Convert the batch, too: images.to(memory_format=torch.channels_last); and keep what is"
        " between from view, reshape and permute.",
        source="https://pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
        next='probing ENDPOINT query "SELECT module, class, input_layout FROM python.modules"',
        look=_channels_last,
        cost_s=1.0,
    ),
    Rule(
        name="tf32-off",
        group="slow",
        subject="set-up",
        symptom="Matrix products take several times as long as the device needs.",
        evidence="float32 parameters on an accelerator, and float32_matmul_precision is highest.",
        certainty="possible",
        gravity=20,
        fix="torch.set_float32_matmul_precision('high'), or bfloat16 by autocast.",
        source="https://pytorch.org/docs/stable/notes/cuda.html",
        next=_ENVIRONMENT,
        look=_tf32,
    ),
)
