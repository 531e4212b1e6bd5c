"""What the job is set up with: its models, optimizers and data loaders.

Rules of this file: runs in the agent's thread, beside a training. Reads plain attributes and what
stands beside a tensor's data (shape, type, device), never the data. What was seen once is kept as
text: a model and an optimizer are gone with the function that held them, and the question comes
later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .calls.names.class_names import class_name, parameters_in, unwrap
from .calls.names.module_names import outermost
from .data.dataloaders import DataLoaders
from .model.tensor_facts import name_of, sizes_of
from .shared.recording import Recording

Facts = Iterator[tuple[str, object]]

_PLAIN = (bool, int, float, str, type(None))


class Configuration:
    """Remembers what the job is set up with."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def seen(self, recording: Recording | None, loaders: DataLoaders | None) -> dict[str, str]:
        """All that is there now or was there before, by name."""
        if recording is not None:
            for look in (_models, _optimizers):
                self._remember(look(recording))
        if loaders is not None:
            self._remember(_loaders(loaders))
        return dict(self._seen)

    def _remember(self, facts: Facts) -> None:
        """Keep what can be told; an object of another library's making may lack an attribute."""
        try:
            for name, value in facts:
                self._seen[name] = str(value)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return


def _models(recording: Recording) -> Facts:
    autocast = recording.rows.autocast
    if autocast is not None:
        yield "autocast", name_of(autocast)
    for root in outermost(recording.objects.roots.alive()):
        held = sizes_of(list(parameters_in(root)))
        if held.dtype is None:
            continue
        name = recording.objects.models.name_of(root)
        yield f"{name}.class", class_name(unwrap(root))
        yield f"{name}.parameters", held.numbers
        yield f"{name}.trainable", held.trainable
        yield f"{name}.dtype", held.dtype
        yield f"{name}.device", (held.device or "").partition(":")[0]  # which one is the rank's


def _optimizers(recording: Recording) -> Facts:
    """The arguments that optimizers were made with: what a schedule changes is in no default."""
    for optimizer in recording.objects.optimizers.alive():
        name = recording.objects.optimizer_names.name_of(optimizer)
        yield f"{name}.class", type(optimizer).__name__
        yield f"{name}.param_groups", len(optimizer.param_groups)
        for option, value in dict(optimizer.defaults).items():
            if _is_plain(value):
                yield f"{name}.{option}", value


def _loaders(loaders: DataLoaders) -> Facts:
    for loader, setup in loaders.setups.copy().items():
        for name, value in setup.items():
            yield f"{loader}.{name}", value


def _is_plain(value: Any) -> bool:
    """Whether it is a value that text can say; a tensor would have to be waited for."""
    if isinstance(value, (tuple, list)):
        return all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)
