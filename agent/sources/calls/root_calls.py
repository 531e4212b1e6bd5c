"""What is known of the call of a root module, as it begins.

Rules of this file: runs in the training threads, at every call of a root that is part of a training
or of inference. Keeps nothing and changes nothing.
"""

from __future__ import annotations

import sys
from typing import Any

from ..shared.recording import RootCall
from ..steps.boundary import Boundary
from ..torch_types import Module
from .names.module_names import IDS, ModuleNames

_PARAMETRIZE = "torch.nn.utils.parametrize"
"""Whose modules make a parameter of another one: torch calls them as that is set up, or read."""


class RootCalls:
    """Tells what a call is of, and whether anything can be trained by it."""

    def __init__(self, names: ModuleNames, boundary: Boundary) -> None:
        self._torch: Any = sys.modules["torch"]
        self._names = names
        self._boundary = boundary

    def called(self, module: Module, ids: bytes, samples: int | None) -> RootCall:
        """What is known of a call of this module."""
        root = self._names.root_of(module) if self._names.owners else module
        if root is not module:
            ids = self._names.known[id(root)]
        return RootCall(
            root,
            module,
            IDS.unpack(ids),
            has_parameters=(
                ids in self._names.with_parameters and type(root).__module__ != _PARAMETRIZE
            ),
            has_grad=self._torch.is_grad_enabled(),
            has_optimizer=self._boundary.optimizer_exists or self._boundary.has_optimizer(),
            samples=samples,
        )
