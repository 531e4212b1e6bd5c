"""Records made by hand as the rules of the doctor are asked about them: each of one situation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from probing.messages.about.labels import LabelsAnswer

from .made import Facts, facts, steps

Make = Callable[[], Facts]
MIB, GIB = 1 << 20, 1 << 30


class Case(NamedTuple):
    """One record.

    Attributes:
        rule: The rule that is asked.
        says: How sure it is; None where it finds nothing.
        since: The step that it names.
        words: What its sentence has in it.
    """

    rule: str
    make: Make
    says: str | None
    since: int | None = None
    words: str = ""


_GUARD = "tensor 'ids' size mismatch at index 1. expected 70, actual 126"


def of_steps(count: int = 200, **columns: Any) -> Make:
    """Steps alone."""
    return lambda: facts({"steps": steps(count, **columns)})


def parameters(
    *rows: dict[str, Any], count: int = 60, last: dict[str, Any] | None = None, **columns: Any
) -> Make:
    """A model of a parameter, or of what `last` says of it, and of others."""
    base = {
        "model": "model", "root": "Net", "numel": 100, "dtype": "float32", "trainable": True,
        "has_gradient": True, "version": 50, "optimizers": 1, "optimizer": "optimizer",
        "has_state": True, "state_bytes": 800, "device": "cpu", "parameter": "last.weight",
    }  # fmt: skip
    made: list[dict[str, Any]] = [
        {**base, **(last or {})},
        *({**base, "parameter": "first.weight", **row} for row in rows),
    ]
    return lambda: facts({"steps": steps(count, **columns)}, {"parameters": made})


def environment(**values: str) -> Make:
    """Values of python.environment."""
    rows: list[dict[str, Any]] = [
        {"kind": "torch", "name": name, "value": value} for name, value in values.items()
    ]
    return lambda: facts({"steps": steps(50)}, {"environment": rows})


def compilations(*at: int, took_s: float = 0.3, limit: int | None = None) -> Make:
    """A function that was compiled in these steps, and given up in one."""
    first = {"function": "forward", "file": "/home/me/train.py", "lineno": 15, "failure": None}
    rows = [
        {**first, "frame": 0, "attempt": number, "duration_s": took_s, "reason": _GUARD,
         "start_ns": 1_000_000_000 * (10 + step) + 1}
        for number, step in enumerate(at)
    ]  # fmt: skip
    rows[0]["reason"] = None
    if limit is not None:
        gone = {"function": None, "failure": "Dynamo recompile limit exceeded", "attempt": len(at)}
        rows.append({**rows[-1], **gone, "start_ns": 1_000_000_000 * (10 + limit) + 1})
    return lambda: facts({"steps": steps(100)}, {"compilations": rows})


def after(step: int, before: Any, since: Any) -> Callable[[int], Any]:
    """A value until a step, and another one from there on."""

    def at(number: int) -> Any:
        value = before if number < step else since
        return value(number) if callable(value) else value

    return at


def relearned(low: int, back: int) -> Callable[[int], float]:
    """A loss that falls from 4.4 to 2.3 until a step, and is where it began from another one on."""
    noise = (0.0, 0.05, -0.05, 0.02)

    def at(step: int) -> float:
        falls = 4.4 - 2.1 * step / low
        rises = 2.3 + 2.0 * (step - low) / (back - low)
        return (falls if step < low else min(rises, 4.3)) + noise[step % 4]

    return at


def batches(count: int, **columns: Any) -> list[dict[str, Any]]:
    """Batches of a loader."""
    base: dict[str, Any] = {"loader": 0, "duration": 0.01, "exhausted": False, "failed": False}
    base.update(columns)
    return [
        {"step": step, "batch": step}
        | {name: value(step) if callable(value) else value for name, value in base.items()}
        for step in range(count)
    ]


def loader(**columns: Any) -> dict[str, list[dict[str, Any]]]:
    """A loader."""
    row: dict[str, Any] = {
        "loader": 0, "dataset": "Photos", "num_workers": 2, "persistent_workers": True,
        "worker": 0, "pid": 7, "given": 100, "batches": 50, "epochs": 3, "sampler": "RandomSampler",
        "sampler_epoch": None, "waiting": False, "awaited": False, "tasks": 2, "outstanding": 0,
    }  # fmt: skip
    return {"dataloaders": [{**row, **columns}]}


def waits(share: float) -> dict[str, Any]:
    """Columns of a step that waits for its data for a part of it."""
    return {"duration": 0.1 / (1 - share), "data_wait_s": 0.1 * share / (1 - share)}


def trace(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Calls of modules."""
    base = {"model": "model", "root": "Net", "class": "Net", "stage": "forward", "duration": 0.01,
            "duration_ns": 10_000_000, "depth": 0, "training": True}  # fmt: skip
    return [{**base, **row} for row in rows]


def modes(training: Callable[[int], bool]) -> Facts:
    """Calls of a model with dropout, in training mode or not."""
    made = steps(60)
    calls = trace(
        *({"step": r["step"], "start_ns": r["start_ns"] + 1, "training": training(r["step"])}
          for r in made)
    )  # fmt: skip
    live: dict[str, list[dict[str, Any]]] = {
        "parameters": [{"model": "model", "optimizers": 1, "parameter": "weight"}],
        "modules": [{"model": "model", "class": "Dropout"}, {"model": "model", "class": "Linear"}],
    }
    return facts({"steps": made, "torch_trace": calls}, live)


def evaluated(
    *,
    training: bool,
    model: str = "model",
    norm: bool = True,
    trained_root: str = "Root",
    off_calls: int = 0,
    module: Mapping[str, Any] | None = None,
    given: Sequence[int] = (),
) -> Facts:
    """An evaluation of a model.

    Args:
        given: The loaders of its batches, one after the other; 0 is the one that is trained on.
        trained_root: The class of the model that is trained.
        off_calls: So many calls more are in evaluation mode.
        module: What else there is to say of its module.
    """
    evaluation = {"step": 20, "start_ns": 5_000, "duration_ns": 1_000, "duration": 1e-6}
    calls = [{"step": 20, "start_ns": 5_100 + n, "model": model,
              "training": training and n < 9, "root": "Root"}
             for n in range(9 + off_calls)]  # fmt: skip
    calls += [{"step": n, "start_ns": 9_000 + n, "root": trained_root} for n in range(9)]
    live: dict[str, list[dict[str, Any]]] = {
        "parameters": [{"model": "model", "optimizers": 1, "parameter": "weight"}],
        "modules": [
            {"model": model, "class": "BatchNorm2d" if norm else "Dropout", **(module or {})}
        ],
    }
    fed = [(5_100 + n, number) for n, number in enumerate(given)]
    fed += [(9_000 + n, 0) for n in range(9)]
    record = {"steps": steps(40), "evaluations": [evaluation], "torch_trace": trace(*calls),
              "batches": [{"start_ns": start, "loader": number, "batch": n, "duration": 1e-9}
                          for n, (start, number) in enumerate(fed)]}  # fmt: skip
    return facts(record, live)


def normed(*bad: int | None) -> Facts:
    """A model whose batch norms have so many running statistics that are not finite."""
    base = {"model": "net", "class": "BatchNorm2d"}
    rows = [
        {**base, "module": f"norm.{place}", "bad_statistics": count}
        for place, count in enumerate(bad)
    ]
    return facts({"steps": steps(40)}, {"modules": rows})


def collectives(calls: int, wait_s: float, size: int) -> Facts:
    """Steps with collectives."""
    made = [
        {"step": step, "op": "all_reduce", "caller": "train.py:9", "duration": wait_s,
         "duration_ns": int(wait_s * 1e9), "wait_ns": int(wait_s * 1e9), "bytes": size}
        for step in range(40)
        for _ in range(calls)
    ]  # fmt: skip
    return facts({"steps": steps(40), "collectives": made})


def swapped(size: int) -> dict[str, list[dict[str, Any]]]:
    """A trainer of which some is in swap."""
    row = {"pid": 1, "role": "trainer", "name": "python", "private_bytes": MIB, "swap_bytes": size}
    return {"host_memory": [row]}


def on_device(
    busy: float, stacks: list[tuple[tuple[str, ...], int]] | None = None, **columns: Any
) -> Make:
    """A training that keeps an accelerator busy for a part of each step."""
    times = [{"step": s, "depth": 0, "stage": "forward", "device_s": 0.1 * busy} for s in range(60)]
    made = steps(60, **{"device_s": 0.1, "host_bound": True, **columns})
    return lambda: facts({"steps": made, "device_times": times}, stacks=stacks)


def at(text: str, count: int, *below: str) -> tuple[tuple[str, ...], int]:
    """Samples at the line of this file that has a text."""
    return ("thread (1): MainThread", f"train ({__file__}:{line(text)})", *below), count


def a_script(loss: Any, model: Any, torch: Any, time: Any, os: Any) -> None:
    """Lines that `at` finds; nobody calls it."""
    print(loss.item())
    torch.cuda.empty_cache()
    loss = model(loss)
    model = model.to(loss)
    time.sleep(0.03)
    os.fsync(loss)


def a_loop(total: Any, image: Any) -> None:
    """As `a_script`."""
    for pixel in image:
        total = total + pixel


def reserved(reserved: float, peak: float, total: float = 80.0) -> Make:
    """Memory of a device of 80 GiB, as its allocator holds it."""
    row = {"phase": "after_step", "device": "cuda:0", "device_total_bytes": int(total * GIB),
           "allocated_bytes": GIB, "reserved_bytes": int(reserved * GIB)}  # fmt: skip
    rows = [{**row, "step": s, "peak_bytes": int(peak * GIB) if s == 3 else GIB} for s in range(9)]
    return lambda: facts({"memory": rows})


def kept(each: int, peak: float = 30.0) -> Facts:
    """A device of 80 GiB, of which so many bytes more are allocated after each step.

    Args:
        peak: How many GiB are allocated in the middle of each.
    """
    row = {"phase": "after_step", "device": "cuda:0", "device_total_bytes": 80 * GIB,
           "reserved_bytes": 30 * GIB, "device_used_bytes": 31 * GIB,
           "peak_bytes": int(peak * GIB), "resident_bytes": GIB}  # fmt: skip
    rows = [{**row, "step": s, "allocated_bytes": 20 * GIB + each * s} for s in range(400)]
    return facts({"steps": steps(400), "memory": rows}, is_alive=False)


def objects(calls: int, *below: str) -> Make:
    """Steps whose ranks gather something, and a sample of where."""
    place = f"{Path(__file__).name}:{line('loss = model(loss)')}"
    rows = [
        {"step": s, "op": "all_gather", "caller": place,
         "duration": 0.01, "wait_ns": 10_000_000, "bytes": 8}
        for s in range(calls)
    ]  # fmt: skip
    stacks = [at("loss = model(loss)", 60, *below), at("print(loss.item())", 40)]
    return lambda: facts({"steps": steps(60), "collectives": rows}, stacks=stacks)


def line(text: str) -> int:
    """Where a line of this file is."""
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.strip() == text)


def trained_meanwhile(
    table: str,
    rows: list[dict[str, Any]],
    stacks: list[tuple[tuple[str, ...], int]] | None = None,
) -> Facts:
    """A record that has rows of steps that ended after the steps were read."""
    return facts({"steps": steps(40), table: rows}, stacks=stacks)


def in_forward(text: str) -> list[tuple[tuple[str, ...], int]]:
    """Samples at a line of this file, as if a module's forward had called its function."""
    main = f"train ({__file__}:{line('loss = model(loss)')})"
    forward = f"Net.forward ({__file__}:{line(text)})"
    return [(("thread (1): MainThread", main, forward), 60)]


def experts(*, called: list[int], learns: list[int]) -> Facts:
    """A mixture of three experts, of which some are called and some have learned."""
    base = {"model": "model", "root": "Net", "numel": 100, "trainable": True, "optimizers": 1,
            "optimizer": "optimizer"}  # fmt: skip
    names = [("gate.weight", True), *((f"experts.{n}.weight", n in learns) for n in range(3))]
    rows = [
        {**base, "parameter": name, "has_gradient": learned, "has_state": learned,
         "version": 60 if learned else 1}
        for name, learned in names
    ]  # fmt: skip
    calls = trace(*({"step": 5, "module": f"experts.{n}", "depth": 1} for n in called))
    return facts({"steps": steps(60), "torch_trace": calls}, {"parameters": rows})


def failing(
    *,
    forward: bool | Callable[[int], bool] = False,
    backward: bool | None = None,
    count: int = 40,
    calls: int = 100,
    taken: int = 1,
    epochs: int = 0,
    training: bool = True,
    is_evaluation: bool = False,
    optimizer: str | None = "SGD",
    micro_batches: int = 1,
) -> Facts:
    """Steps, and calls after them from which no step came.

    Args:
        forward: Whether these calls failed, by their number.
        backward: Whether their backward passes did; None where there were none.
        taken: Batches for each of them.
        epochs: Epochs of the loader that ended meanwhile.
    """
    made = steps(count, optimizer=optimizer, micro_batches=micro_batches)
    second = 1_000_000_000
    rows = [
        {"step": s, "stage": stage, "start_ns": (10 + s) * second, "failed": False,
         "recomputed": False}
        for s in range(count) for stage in ("forward", "backward")
    ]  # fmt: skip
    begin = (10 + count) * second
    for number in range(calls):
        fails = forward(number) if callable(forward) else forward
        one = {"step": count, "start_ns": begin + number, "recomputed": False,
               "training": training}  # fmt: skip
        rows.append({**one, "stage": "forward", "failed": fails})
        if backward is not None:
            rows.append({**one, "stage": "backward", "failed": backward})
    each = {"loader": 0, "step": count, "duration": 0.01, "failed": False}
    batches = [
        {**each, "batch": n, "start_ns": begin + n, "exhausted": n < epochs}
        for n in range((taken * calls or 100 * (calls == 0)) + epochs)
    ]
    evaluations = [{"step": count, "start_ns": begin, "duration_ns": second}] * is_evaluation
    record = {"steps": made, "torch_trace": trace(*rows), "batches": batches,
              "evaluations": evaluations}  # fmt: skip
    return facts(record, {"optimizers": [{"optimizer": optimizer}] if optimizer else []})


def ooms(*numbers: int) -> list[dict[str, Any]]:
    """Allocations that failed in these steps."""
    one: dict[str, Any] = {"device": "cuda:0", "phase": "forward", "error": "CUDA out of memory"}
    one |= dict.fromkeys(("requested_bytes", "free_bytes", "total_bytes"), MIB)
    return [{"step": step, **one} for step in numbers]


def memory(
    values: Callable[[int], float],
    mapped: Callable[[int], float] = lambda _: 0.0,
    virtual: Callable[[int], float] | None = None,
    shm_bytes: int | None = None,
    count: int = 200,
) -> Facts:
    """Resident memory, step by step, what of it is of files, and what was asked for."""
    rows = [
        {
            "step": s,
            "phase": "after_step",
            "device": "cpu",
            "resident_bytes": int(values(s)),
            "mapped_bytes": int(mapped(s)),
            "virtual_bytes": int((virtual or values)(s)),
        }
        for s in range(count)
    ]
    live = {} if shm_bytes is None else {"host_memory": [{"shm_bytes": shm_bytes}]}
    return facts({"steps": steps(count), "memory": rows}, live, is_alive=shm_bytes is not None)


def labels(shift: str) -> LabelsAnswer:
    """What is told of labels."""
    return LabelsAnswer(
        origin="the next batch", inputs="tokens", labels="labels", step=1, waited_s=0.0, samples=1,
        read=1, trained=9, ignored=0, all_ignored=(), same=1.0, next=0.0, previous=0.0, shift=shift,
        tokenizer=None, texts=(), shown=(),
    )  # fmt: skip


def gradients(
    count: int = 60,
    *,
    live: dict[str, Any] | None = None,
    notes: tuple[str, ...] = (),
    **columns: Any,
) -> Make:
    """Three steps in which the gradients of two parameters were looked at.

    Args:
        notes: What the agent says of them.
        count: Steps of the training, of which columns are given with `step_` before their name.
        columns: A tuple has a value for each parameter, a list one for each of the three steps.
    """
    base = {"norm": 1.0, "weight_norm": 1.0, "update_ratio": 0.01, "passes": 1, "kept_passes": 1,
            "has_older": False, "numel": 100, "subnormal_share": 0.0, "weight_subnormal_share": 0.0,
            "state_subnormal_share": 0.0, "model": "model"}  # fmt: skip
    own = {k: v for k, v in columns.items() if not k.startswith("step_")}
    of_step = {k.removeprefix("step_"): v for k, v in columns.items() if k.startswith("step_")}
    made: list[dict[str, Any]] = []
    for step in range(count - 3, count):
        for number, name in enumerate(("first.weight", "last.weight")):
            row = {**base, **own}
            row = {k: v[number] if isinstance(v, tuple) else v for k, v in row.items()}
            row = {k: v[step - count] if isinstance(v, list) else v for k, v in row.items()}
            made.append({**row, "step": step, "parameter": name})
    all_steps = steps(count, **{"lr": 0.1, "micro_batches": 1, "first_loss": 1.0, **of_step})
    batches_of = [
        {"step": row["step"], "micro_batch": n, "loss": of_step.get("part", 1.0),
         "data_wait_s": of_step.get("wait"), "backward_s": 0.01, "duration": 0.01}
        for row in all_steps
        for n in range(row["micro_batches"])
    ]  # fmt: skip
    for row in all_steps:
        row.pop("part", None), row.pop("wait", None)
    record = {"steps": all_steps, "gradients": made, "micro_batches": batches_of}
    return lambda: facts(record, live, notes=notes)


def warned(message: str, **columns: Any) -> Make:
    """A training of which torch has warned."""
    row = {"module": "__main__", "file": "/home/a/train.py", "lineno": 7, "message": message}
    return lambda: facts({"steps": steps(60, **columns)}, {"warnings": [row]})


def bad_since(since: int, **columns: Any) -> Make:
    """A loss that is NaN since a step, and what a watch found after that, or when it is said."""
    row = {"step": 150, "module": "head.2", "class": "Log", "stage": "forward", "tensor": "0",
           "given_max": 4.0, **columns}  # fmt: skip
    made = steps(200, loss=after(since, 0.5, float("nan")), loss_finite=after(since, True, False))
    return lambda: facts({"steps": made, "numerics": [row]})


def layouts(*given: str, weights: str = "channels_last") -> Make:
    """A model of convolutions, and how lies what each of them is given."""
    parameters = [
        {"model": "model", "parameter": f"{n}.weight", "optimizers": 1, "layout": weights}
        for n, _ in enumerate(given)
    ]
    modules = [
        {"model": "model", "module": str(n), "class": "Conv2d", "input_layout": layout}
        for n, layout in enumerate(given)
    ]
    return lambda: facts({"steps": steps(60)}, {"parameters": parameters, "modules": modules})


def optimizer(**columns: Any) -> Make:
    """An optimizer that takes much of each step."""
    row = {"optimizer": "AdamW", "tensors": 200, "device": "cpu", "implementation": "default"}
    made = steps(60, optimizer_s=0.03)
    return lambda: facts({"steps": made}, {"optimizers": [{**row, **columns}]})


def table(optimizer_s: float, *, others: int = 2, **columns: Any) -> Make:
    """A large table and other parameters, and an optimizer that takes that much of 0.1 s."""
    base = {"numel": 6_000_000, "bytes": 24_000_000, "trainable": True, "optimizers": 1}
    made = [{**base, "parameter": "table.weight", **columns}]
    small = {**base, "numel": 250_000, "bytes": 1_000_000}
    made += [{**small, "parameter": f"layers.{n}.weight"} for n in range(others)]
    return lambda: facts({"steps": steps(60, optimizer_s=optimizer_s)}, {"parameters": made})
