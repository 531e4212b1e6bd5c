"""Rules about how the training was set up: switches, threads, types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....units import duration
from ..facts import Facts, percent
from ..findings import Rule, Sign

_FEW_AGAIN, _LEAST_SHARE = 3, 0.05
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
    again = [row for row in _compiled(facts) if row["attempt"] and row["failure"] is None]
    steps = facts.now(least=_FEW_AGAIN)  # each may take seconds: there are few
    begin, newest = steps.rows[0]["start_ns"], steps.rows[-1]
    end = newest["start_ns"] + newest["duration"] * 1e9  # not what goes on now
    since = [row for row in again if begin <= row["start_ns"] <= end]
    took_s = sum(row["duration_s"] or 0.0 for row in since)
    share = took_s / steps.total_s if steps.total_s else 0.0
    if len(since) < _FEW_AGAIN or share < _LEAST_SHARE:
        return
    last = next((row for row in reversed(since) if row["function"]), since[-1])
    yield Sign(
        certainty="likely",
        summary=f"The function {_function(last)} is compiled again and again: {len(since)} times in"
        f" the last {len(steps)} steps, {percent(share)} of their time",
        since_step=_step_at(facts, again[0]["start_ns"]),
        evidence=_reasons(last, took_s),
        weight=share,
        fix=_guard_fix(last),
    )


def _given_up(facts: Facts) -> Iterator[Sign]:
    """torch.compile has given a function up: from then on it is not compiled."""
    found = _compiled(facts)
    for row in found:
        if row["failure"] is None or "limit" not in row["failure"].lower():
            continue
        own = [each for each in found if each["frame"] == row["frame"] and each["function"]]
        best = own[-1] if own else row
        yield Sign(
            certainty="certain",
            summary=f"The function {_function(best)} runs uncompiled: torch.compile gave"
            f" it up after {row['attempt'] or len(own)} compilations",
            since_step=_step_at(facts, row["start_ns"]),
            evidence=(row["failure"], *_reasons(row if row["reason"] else best)),
            weight=0.5,
            fix=_guard_fix(row if row["reason"] else best),
        )
        return


def _compiled(facts: Facts) -> list[dict[str, Any]]:
    """The functions that torch.compile has compiled, in order.

    Raises:
        NotLookedAt: The process does not answer.
    """
    rows = [row for row in facts.live("compilations") if row["start_ns"] is not None]
    rows = [row for row in rows if row.get("stage") != "backward"]
    return sorted(rows, key=lambda row: row["start_ns"])


def _function(row: dict[str, Any]) -> str:
    """A function, and where it stands."""
    if row["function"] is None:
        return "of some name"
    file = str(row["file"] or "").rpartition("/")[2]
    return f"{row['function']} ({file}:{row['lineno']})"


def _reasons(row: dict[str, Any], took_s: float | None = None) -> tuple[str, ...]:
    """Why it was compiled once more."""
    took = () if took_s is None else (f"{duration(took_s)} of compiling, by python.compilations",)
    return (*took, *((f"the guard that failed last: {row['reason']}",) if row["reason"] else ()))


def _guard_fix(row: dict[str, Any]) -> str:
    """What to do about the guard that failed; empty where it tells of no value."""
    reason = row["reason"] or ""
    if "==" not in reason or "size" in reason or "stride" in reason:
        return ""
    return (
        "Give the value that the guard names as a tensor (an attribute of a module as a buffer), or"
        " let what changes it stand outside of what is compiled."
    )


def _step_at(facts: Facts, at_ns: int) -> int | None:
    """The step in which something was; None of what was before all that are on record."""
    return next((r["step"] for r in reversed(facts.steps.rows) if r["start_ns"] <= at_ns), None)


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


ENVIRONMENT = (
    "probing ENDPOINT query \"SELECT name, value FROM python.environment WHERE kind IN ('torch',"
    " 'place')\""
)
_COMPILATIONS = (
    'probing ENDPOINT query "SELECT function, file, lineno, attempt, duration_s, reason, failure'
    ' FROM python.compilations ORDER BY start_ns"'
)
_FEWER_SHAPES = (
    "Pad batches to a few lengths, or compile with dynamic=True; a number that changes from call to"
    " call belongs into a tensor."
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
        next=ENVIRONMENT,
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
        next=ENVIRONMENT,
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
        next=ENVIRONMENT,
        look=_profiler,
    ),
    Rule(
        name="recompiling",
        group="slow",
        subject="compilation",
        symptom="Some steps take seconds, again and again.",
        evidence=f"python.compilations: {_FEW_AGAIN} functions or more that were compiled once more"
        f" in the last steps, which took {percent(_LEAST_SHARE)} of their time or more.",
        certainty="likely",
        gravity=46,
        fix=_FEWER_SHAPES,
        source="https://pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
        next=_COMPILATIONS,
        look=_recompiling,
    ),
    Rule(
        name="compilation-given-up",
        group="slow",
        subject="compilation",
        symptom="A compiled model is no faster than a plain one; torch warned once, long ago.",
        evidence="`failure` of python.compilations: the limit of recompilations was reached.",
        certainty="certain",
        gravity=44,
        fix=_FEWER_SHAPES,
        source="https://pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
        next=_COMPILATIONS,
        look=_given_up,
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
        next=ENVIRONMENT,
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
)
