"""The model that counts: whose calls are steps where nothing else says what one is.

Rules of this file: runs in the training threads, a few times per step. Keeps no model alive.
"""

from __future__ import annotations

import weakref
from typing import Any

from .....ring.format import NULL_NAME
from ...shared.recording import Recording, RootCall
from ...torch_types import Module
from ..rows.open_step import Ids


class MainModel:
    """The first root with parameters, while it lives and is trained; else one that is.

    Attributes:
        ids: The numbers of its name, class and root class; None before there is one.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._root: weakref.ref[Any] | None = None
        self.ids: Ids | None = None

    @property
    def is_met(self) -> bool:
        """Whether there has been one, though it may live no more."""
        return self._root is not None

    def now(self) -> Any:
        """The model, while it lives."""
        return self._root() if self._root is not None else None

    def take(self, call: RootCall) -> Any:
        """The model, which is the one that is called where there was none."""
        main = self.now()
        if main is None and call.has_parameters:
            self.become(call.root, call.ids)
            return call.root
        return main

    def become(self, root: Module, ids: Ids) -> None:
        """It is this one from now on."""
        self._root, self.ids = weakref.ref(root), ids
        self._recording.objects.model = self._root
        self._recording.rows.trains(root)

    def trained(self, models: list[tuple[Any, Ids]]) -> int:
        """A step ends in which these were trained, or it, for all that is known.

        Returns:
            The number of the names of all of them.
        """
        roots = [root for root, _ in models]
        if roots and not any(root is self.now() for root in roots):
            self.become(*models[0])
        main = self.now()
        return self.named(roots or ([] if main is None else [main]))

    def named(self, roots: list[Module]) -> int:
        """The number of the names of some models, one behind the other."""
        if not roots:
            return NULL_NAME
        names = dict.fromkeys(map(self._recording.objects.models.name_of, roots))
        return self._recording.names.intern(", ".join(names))
