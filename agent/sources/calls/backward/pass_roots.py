"""Which roots a backward pass goes through, where the script calls several of them itself.

Rules of this file: runs in the training thread, but for the hooks, which run where autograd calls
them: they look at no gradient, return None and keep nothing of the user's. Where there is one root
with parameters, nothing is hooked; so the first pass of several goes by the root called last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .....ring.names import joined
from ...shared.recording import Recording
from ...torch_types import Module
from .. import dynamo
from ..names.class_names import class_name, unwrap
from ..names.module_names import IDS, ModuleNames
from .graph_nodes import nodes_of

_MOST = 64
"""So many roots, and so many ways to call them together, are told apart."""


class PassRoots:
    """Names whole passes by all roots that they go through.

    Attributes:
        are_several: Whether there have been several roots with parameters; else nothing is to be
            asked here of a pass.

    Args:
        watch: Hooks nodes of the graph, see `ModuleBackward.watch`.
    """

    def __init__(
        self, recording: Recording, names: ModuleNames, watch: Callable[..., bool]
    ) -> None:
        self._torch: Any = sys.modules["torch"]
        self._recording = recording
        self._names = names
        self._watch = watch
        self._words: dict[bytes, tuple[str, str]] = {}
        self._hooks: dict[bytes, dict[int, Callable[[Any], None]]] = {}
        self._groups: dict[tuple[bytes, ...], bytes] = {}
        self._usual: dict[tuple[bytes, ...], bytes] = {}
        self._called: dict[bytes, None] = {}
        self._reached: dict[bytes, None] = {}
        self._is_known = True
        self.are_several = False

    def root_left(self, root: Module, result: Any) -> None:
        """A root has returned what gradients may flow back to it from."""
        if len(self._names.with_parameters) == 1:  # as in most trainings
            self._is_known = False
            return
        owner = self._names.root_of(root) if self._names.owners else root
        ids = self._names.known.get(id(owner))
        if ids not in self._names.with_parameters or not self._torch.is_grad_enabled():
            return
        assert ids is not None
        is_plain = type(result) is self._torch.Tensor
        node = result.grad_fn if is_plain else None
        nodes = nodes_of(result, self._torch.Tensor) if node is None else [node]
        if not nodes or len(self._called) >= _MOST:
            self._is_known = False
            return
        self._called[ids] = None
        if ids not in self._hooks and len(self._hooks) >= _MOST:
            self._is_known = False
            return
        if ids not in self._hooks:
            self._meet(root, ids)
        if not self._watch(self._hooks[ids], nodes):
            self._is_known = False

    def pass_begins(self) -> bytes | None:
        """The numbers of the roots that it will go through, by those before it; None: the last."""
        self._reached.clear()
        return self._usual.get(tuple(self._called)) if self._usual else None

    def pass_ended(self) -> bytes | None:
        """Those of the roots that it went through; None where that is not known."""
        is_known, self._is_known = self._is_known, True
        if not (self._reached and is_known):
            self._called.clear()
            return None
        called = tuple(self._called)
        # What was called before an earlier pass comes first.
        places = {ids: place for place, ids in enumerate(called)}
        reached = tuple(sorted(self._reached, key=lambda ids: places.get(ids, -1)))
        self._called.clear()
        group = self._groups.get(reached)
        if group is None:
            if len(self._groups) >= _MOST:
                self._groups.clear()
                self._usual.clear()
            group = self._groups[reached] = self._joined(reached)
        self._usual[called] = group
        return group

    def _meet(self, root: Module, ids: bytes) -> None:
        """Prepare what is hooked."""
        plain = unwrap(self._names.root_of(root))
        name = self._recording.objects.models.name_of(self._names.root_of(root))
        self._words[ids] = class_name(plain), name
        self.are_several = True
        reached = self._reached

        is_compiling: Callable[[], bool] = self._torch.compiler.is_dynamo_compiling

        def at_output(_: object) -> None:
            if not is_compiling():  # else a pass would be compiled anew for each set of roots
                reached[ids] = None

        dynamo.leave_out_with_calls([at_output.__code__])
        self._hooks[ids] = {0: at_output}

    def _joined(self, roots: tuple[bytes, ...]) -> bytes:
        """The numbers of several roots together; of one its own."""
        if len(roots) == 1:
            return roots[0]
        words = [self._words[ids] for ids in roots]
        classes, names = (", ".join(texts) for texts in zip(*words, strict=True))
        intern = self._recording.names.intern
        number = intern(classes)
        return IDS.pack(number, number, intern(joined(classes, names)))
