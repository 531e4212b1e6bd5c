"""Which weights of the models are not finite, and whose they are.

Rules of this file: runs in the training thread, between two steps; waits for each device once, and
changes no tensor.
"""

from __future__ import annotations

import sys
from typing import Any

from ..steps.recording import Recording
from ..torch_types import Module
from .finite import Bad, look_at
from .finite_hooks import Watched
from .gradient_tensors import is_plain, norms_of


def bad_weights(recording: Recording, roots: list[Module]) -> dict[int, tuple[Watched, Bad]]:
    """The parameters that are not finite, by identity, each with its module."""
    torch: Any = sys.modules["torch"]
    owners = owners_of(recording, roots)
    named = {id(p): p for root in roots for p in root.parameters() if id(p) in owners}
    weights = [parameter for parameter in named.values() if is_plain(parameter, torch)]
    found: dict[int, tuple[Watched, Bad]] = {}
    for weight, norm in zip(weights, norms_of(weights), strict=True):
        if not bool(torch.isfinite(norm)):
            watched, name = owners[id(weight)]
            bad = look_at(name, weight)
            if bad is not None:
                found[id(weight)] = watched, bad
    return found


def owners_of(recording: Recording, roots: list[Module]) -> dict[int, tuple[Watched, str]]:
    """By identity of a parameter, the module that it belongs to, and its name there."""
    owners: dict[int, tuple[Watched, str]] = {}
    for root in roots:
        text = recording.models.root_text(root)
        for path, module in root.named_modules():
            watched = Watched(module, path, root, text)
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    owners.setdefault(id(parameter), (watched, name))
    return owners
