"""The model that counts: whose calls are steps where nothing else says what one is.

Rules of this file: runs in the training threads, a few times per step. Keeps no model alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from .....ring.format import NULL_NAME
from ...shared.recording import Recording, RootCall
from ...torch_types import Module
from ..rows.open_step import Ids


class MainModel:
    """The first root with parameters, while it lives and is trained; else one that is.

    Attributes:
        now: Gives the model, while it lives.
        is_met: Whether there has been one, though it may live no more.
        ids: The numbers of its name, class and root class; None before there is one.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.now: Callable[[], Any] = _nobody
        self.is_met = False
        self.ids: Ids | None = None
        self._named: tuple[weakref.ref[Any], int] | None = None  # the last that was asked for

    def take(self, call: RootCall) -> Any:
        """The model, which is the one that is called where there was none."""
        main = self.now()
        if main is None and call.has_parameters:
            self.become(call.root, call.ids)
            return call.root
        return main

    def become(self, root: Module, ids: Ids) -> None:
        """It is this one from now on."""
        self.now, self.ids, self.is_met = weakref.ref(root), ids, True
        self._recording.objects.model = self.now
        self._recording.rows.trains(root)

    def trained(self, models: Mapping[int, tuple[weakref.ref[Any], Ids]]) -> int:
        """A step ends in which these were trained, or it, for all that is known.

        Args:
            models: By identity.

        Returns:
            The number of the names of all of them.
        """
        main = self.now()
        living = [(root, ids) for of, ids in models.values() if (root := of()) is not None]
        if not living:
            return NULL_NAME if main is None else self.named([main])
        roots = [root for root, _ in living]
        if all(root is not main for root in roots):
            self.become(*living[0])
        return self.named(roots)

    def named(self, roots: list[Module]) -> int:
        """The number of the names of some models, one behind the other."""
        if len(roots) != 1:
            return self._joined(roots) if roots else NULL_NAME
        named, root = self._named, roots[0]
        if named is None or named[0]() is not root:
            named = self._named = (weakref.ref(root), self._joined(roots))
        return named[1]

    def _joined(self, roots: list[Module]) -> int:
        """The same, of what nothing is known of."""
        names = dict.fromkeys(map(self._recording.objects.models.name_of, roots))
        return self._recording.names.intern(", ".join(names))


def _nobody() -> Any:
    """There has been no model so far."""
    return None
