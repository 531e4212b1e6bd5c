"""What a difference in the set-up of a training can change.

Rules of this file: one table, looked through from its top. How strong a link is orders what may
explain a change, and says how much of a change it takes to believe it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...tables import STEP_PHASES

_DATA = ("data_wait", "to_device")
_COMPUTE = ("forward", "loss", "backward", "gradients", "optimizer")
_ALL = (*STEP_PHASES, "gradient_sync")


class Reach(NamedTuple):
    """What it can change.

    Attributes:
        phases: The phases of a step whose time it can change.
        memory: Whether it can change the memory.
        loss: Whether it can change the loss.
        strength: 3 where that is what it is for, 2 where it usually does, 1 where it may do
            anything, 0 where it does nothing.
    """

    phases: tuple[str, ...] = ()
    memory: bool = False
    loss: bool = False
    strength: int = 0


_NOTHING = Reach()
_ANYTHING = Reach(_ALL, memory=True, loss=True, strength=1)

_TABLE: tuple[tuple[str, Reach], ...] = (
    (r"code script$", _ANYTHING._replace(strength=3)),
    (r"code ", _ANYTHING),
    (r"seed ", Reach(loss=True, strength=2)),
    (
        r"configuration .*\.(num_workers|prefetch_factor|persistent_workers|pin_memory)$",
        Reach(_DATA, strength=3),
    ),
    (r"configuration .*\.batch_size$", Reach(_ALL, memory=True, loss=True, strength=3)),
    (r"configuration .*\.(batches|dataset|sampler)$", Reach(_DATA, loss=True, strength=2)),
    (r"step (samples|tokens|micro_batches)", Reach(_ALL, memory=True, loss=True, strength=3)),
    (
        r"configuration (autocast|.*\.dtype)$",
        Reach((*_COMPUTE, "to_device"), memory=True, loss=True, strength=3),
    ),
    (
        r"configuration .*\.(class|parameters|trainable|device|param_groups)$",
        Reach((*_COMPUTE, "to_device", "gradient_sync"), memory=True, loss=True, strength=3),
    ),
    (
        r"configuration .*\.(fused|foreach|capturable|differentiable|amsgrad)$",
        Reach(("optimizer",), memory=True, loss=True, strength=2),
    ),
    (r"(configuration .*|step lr)", Reach(loss=True, strength=3)),
    (r"torch (anomaly_detection|profiler)$", Reach(_ALL, memory=True, strength=3)),
    (r"torch num_interop_threads$", Reach(_COMPUTE, strength=1)),
    (r"torch default_dtype$", Reach(_COMPUTE, memory=True, loss=True, strength=3)),
    (r"torch ", Reach(_COMPUTE, memory=True, strength=3)),
    (r"environment (NCCL|GLOO)", Reach(("gradient_sync", "backward"), strength=2)),
    (
        r"environment (MALLOC_|PYTORCH_.*ALLOC)",
        Reach(_COMPUTE, memory=True, strength=2),
    ),
    (
        r"environment (OMP|GOMP|MKL|KMP|OPENBLAS|CUBLAS|CUDA|CUDNN|NVIDIA|TORCH|PYTORCH)",
        Reach(_COMPUTE, strength=1),
    ),
    (r"place (host|cpus|cpu|driver|kernel)$", Reach(_ALL, strength=2)),
    (
        r"version (python|torch|numpy|triton|torchvision|torchaudio|transformers|lightning)$",
        Reach(_ALL, memory=True, loss=True, strength=1),
    ),
    (
        r"argument .*(batch|accum)",
        Reach(_ALL, memory=True, loss=True, strength=2),
    ),
    (r"argument .*(worker|prefetch|pin)", Reach(_DATA, strength=2)),
    (r"argument .*thread", Reach(_COMPUTE, strength=2)),
    (
        r"argument .*(dtype|amp|precision|bf16|fp16|half|compile|tf32)",
        Reach(_COMPUTE, memory=True, loss=True, strength=2),
    ),
    (r"argument .*(\blr\b|learning|momentum|decay|warm|seed)", Reach(loss=True, strength=2)),
    (r"argument .*(steps|epoch|iters?\b)", Reach(loss=True, strength=1)),
    (
        r"argument .*(\bout|output|log|save|resume|ckpt|checkpoint|\bname|wandb|tensorboard)",
        _NOTHING,
    ),
    (r"argument ", _ANYTHING),
)


def reach_of(kind: str, name: str, *, same_code: bool = False) -> Reach:
    """What a difference can change.

    Args:
        same_code: Whether all files of the job are known to be the same.
    """
    if kind == "code" and name.startswith("git "):
        return _NOTHING if same_code or name == "git branch" else _ANYTHING
    said = f"{kind} {name}"
    found = (reach for words, reach in _TABLE if re.match(words, said, re.IGNORECASE))
    return next(found, _NOTHING)
