"""What is known of the call of a root module, as it begins.

Rules of this file: runs in the training threads, at every call of a root that is part of a training
or of inference. Keeps nothing and changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..shared.recording import RootCall
from ..steps.boundary import Boundary
from ..torch_types import Module
from .names.class_names import parameters_in, unwrap
from .names.module_names import IDS, ModuleNames

_PARAMETRIZE = "torch.nn.utils.parametrize"
"""Whose modules make a parameter of another one: torch calls them as that is set up, or read."""


class RootCalls:
    """Tells what a call is of, and whether anything can be trained by it."""

    def __init__(
        self, names: ModuleNames, boundary: Boundary, is_trained: Callable[[Module], bool]
    ) -> None:
        """Begin.

        Args:
            is_trained: Whether an optimizer steps parameters of a module.
        """
        self._torch: Any = sys.modules["torch"]
        self._names = names
        self._boundary = boundary
        self._is_trained = is_trained

    def called(self, module: Module, ids: bytes, samples: int | None) -> RootCall:
        """What is known of a call of this module."""
        names, has_grad = self._names, self._torch.is_grad_enabled()
        root = names.root_of(module) if names.owners else module
        if root is module and not has_grad and ids not in names.with_parameters:
            root = self._evaluated_part_of(module)
        if root is not module:
            ids = names.known[id(root)]
        return RootCall(
            root,
            module,
            IDS.unpack(ids),
            has_parameters=(ids in names.with_parameters and type(root).__module__ != _PARAMETRIZE),
            has_grad=has_grad,
            has_optimizer=self._boundary.optimizer_exists or self._boundary.has_optimizer(),
            samples=samples,
        )

    def _evaluated_part_of(self, module: Module) -> Module:
        """The model that is evaluated by a call of a part of it alone; else that part itself.

        All of the model is in evaluation mode then, and the part is trained at other times. Else it
        may make what something is trained by, as a frozen part and one of a teacher do.
        """
        whole = self._names.whole_of(module)
        if whole is None or module.training or unwrap(whole).training:
            return module
        is_frozen = not any(parameter.requires_grad for parameter in parameters_in(module))
        return module if is_frozen or not self._is_trained(module) else whole
