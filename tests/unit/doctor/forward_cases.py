"""Cases of `own-code` in a module's forward: records whose samples are at lines of one."""

from __future__ import annotations

from typing import Any

from .made import facts, steps
from .records import Case, Make, at, trace

_FORWARD = f"Net.forward ({__file__}:1)"
_POSITIONS = f"positions ({__file__}:1)"
_CALL = "Module._call_impl (/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1789)"


def _in_forward(
    *below: str,
    forward_s: float = 0.08,
    backward_s: float = 0.015,
    calls: int = 1,
    trainable: bool = True,
    **columns: Any,
) -> Make:
    """Samples in the forward of a model, and what that called."""
    made = steps(40, forward_s=forward_s, backward_s=backward_s, optimizer_s=0.005, **columns)
    rows = trace(*({"step": s, "start_ns": s} for s in range(40) for _ in range(calls)))
    parameter = {"model": "model", "parameter": "head.weight", "trainable": trainable,
                 "optimizers": int(trainable)}  # fmt: skip
    stacks = [at("loss = model(loss)", 60, _CALL, _FORWARD, *below), at("print(loss.item())", 40)]
    return lambda: facts(
        {"steps": made, "torch_trace": rows}, {"parameters": [parameter]}, stacks=stacks
    )


IN_FORWARD = (
    Case("own-code", _in_forward(_POSITIONS), "possible", None, "60 % of the time is own code of"
         " Net.forward, outside of its submodules, most at forward_cases.py:1 in positions; hardly"
         " any of it has gradients: the backward passes take 15 %"),
    Case("own-code", _in_forward(), "possible", None, "forward_cases.py:1 in Net.forward"),
    # what has gradients takes as long once more
    Case("own-code", _in_forward(_POSITIONS, forward_s=0.06, backward_s=0.035), None),
    # it evaluates or is not trained by backward passes
    Case("own-code", _in_forward(_POSITIONS, backward_s=0.0), None),
    # in a module inside, of a library or of the program
    Case("own-code", _in_forward(_CALL), None),
    # as a policy that is played before it is trained
    Case("own-code", _in_forward(_POSITIONS, calls=5), None),
    Case("own-code", _in_forward(_POSITIONS, calls=4, micro_batches=4), "possible"),
    # a frozen part, whose batches are others in each step
    Case("own-code", _in_forward(_POSITIONS, trainable=False), None),
    # lines wait for a device, and it is not known for what of it
    Case("own-code", _in_forward(_POSITIONS, device_s=0.1), None),
)  # fmt: skip
