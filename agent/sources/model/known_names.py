"""What probing knows of a training, by the names that people use for it.

Rules of this file: imports nothing, runs nothing of the objects' own, and keeps nothing alive: what
is found was recorded by weak references, or is looked for among the objects of the process. That
takes up to some tenths of a second, so it is done only for a name that nobody else has.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ....cluster.launchers import torch_group
from ..shared.recording import Recording
from ..storage.living import objects_of, whole
from ..torch_types import LRScheduler, Optimizer

if TYPE_CHECKING:
    from ..data.dataloaders import DataLoaders

_SCHEDULERS = (("torch.optim.lr_scheduler", "LRScheduler"),)
_SCALERS = (("torch.amp.grad_scaler", "GradScaler"),)
_LOADERS = (("torch.utils.data.dataloader", "DataLoader"),)
_TRAINERS = (
    ("transformers.trainer", "Trainer"),
    ("lightning.pytorch.trainer.trainer", "Trainer"),
    ("pytorch_lightning.trainer.trainer", "Trainer"),
    ("accelerate.accelerator", "Accelerator"),
)
_MOST_WRAPPERS = 4
_AT_HAND = ("model", "optimizer", "loss", "batch", "step", "rank")


class KnownNames(Mapping[str, Any]):
    """Names of the training; each is looked for when it is asked.

    Attributes:
        possible: The names that it may know, whether or not there is anything of them.
        at_hand: Those of them that are found without a look at every object of the process.
    """

    def __init__(
        self, recording: Recording, loaders: DataLoaders | None, step: Callable[[], int | None]
    ) -> None:
        self._recording = recording
        self._dataloaders = loaders
        self._step = step
        self.possible = tuple(_FINDERS)
        self.at_hand = _AT_HAND

    def __getitem__(self, name: str) -> Any:
        value = _FINDERS[name](self)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return name in _FINDERS and _FINDERS[str(name)](self) is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name in _FINDERS if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def model(self) -> Any:
        """The root module last trained or called."""
        return _alive(self._recording.objects.model)

    def optimizer(self) -> Any:
        """The optimizer whose steps are counted."""
        return _alive(self._recording.objects.optimizer)

    def batch(self) -> Any:
        """What came in last."""
        return self._recording.objects.inputs.last_batch()

    def step(self) -> int | None:
        """The step in progress."""
        return self._step()

    def loss(self) -> Any:
        """The last loss: itself while it lives, else its number."""
        tensor, number = self._recording.objects.loss or (None, None)
        alive = _alive(tensor)
        if alive is not None:
            return whole([alive])[0]
        return None if number is None else number.read()

    def scheduler(self) -> Any:
        """The scheduler of the optimizer; of several, the one that is part of no other."""
        found = schedulers_of(_alive(self._recording.objects.optimizer))
        parts = {id(part) for s in found for part in _own(s).get("_schedulers", ())}
        return next((s for s in reversed(found) if id(s) not in parts), None)

    def loader(self) -> Any:
        """The loader that has given the most batches."""
        feeds = list(self._dataloaders.feeds()) if self._dataloaders is not None else []
        feeds.sort(key=lambda feed: feed[1].loader.given, reverse=True)
        loaders = _living(_LOADERS) if feeds else []
        for iterator, _ in feeds:
            sampler = getattr(iterator, "_index_sampler", None)
            for loader in loaders:
                if sampler is not None and _draws_from(loader, sampler):
                    return loader
        return None


_FINDERS: dict[str, Callable[[KnownNames], Any]] = {
    "model": KnownNames.model,
    "optimizer": KnownNames.optimizer,
    "train_loader": KnownNames.loader,
    "dataloader": KnownNames.loader,
    "scheduler": KnownNames.scheduler,
    "scaler": lambda _: next(iter(scalers_there_are()), None),
    "loss": KnownNames.loss,
    "batch": KnownNames.batch,
    "step": KnownNames.step,
    "rank": lambda _: _rank(),
    "trainer": lambda _: _trainer(),
}
"""Of the class: methods bound to one that it held itself would leave it to the collector."""


def schedulers_of(optimizer: Optimizer) -> list[Any]:
    """The schedulers of an optimizer, those that are parts of others included."""
    return schedulers_among(schedulers_there_are(), optimizer)


def schedulers_among(schedulers: list[LRScheduler], optimizer: Optimizer) -> list[Any]:
    """Those of some schedulers that are an optimizer's."""
    return [s for s in schedulers if _is_around(_own(s).get("optimizer"), optimizer)]


def schedulers_there_are() -> list[Any]:
    """The schedulers of the process."""
    return _living(_SCHEDULERS)


def _is_around(thing: object, optimizer: Optimizer) -> bool:
    """Whether it is an optimizer, or one around that, as accelerate hands to a scheduler.

    One that shares the groups of another, as Lookahead does, is around that as well.
    """
    for _ in range(_MOST_WRAPPERS):
        if thing is None or thing is optimizer or _share_groups(thing, optimizer):
            break
        thing = _own(thing).get("optimizer")
    return thing is not None


def _share_groups(one: object, other: object) -> bool:
    """Whether two optimizers have the very same groups of parameters."""
    groups, others = _own(one).get("param_groups"), _own(other).get("param_groups")
    if not (isinstance(groups, list) and isinstance(others, list) and groups):
        return False
    return len(groups) == len(others) and all(map(operator.is_, groups, others))


def scalers_there_are() -> list[Any]:
    """The gradient scalers of the process."""
    return _living(_SCALERS)


def _draws_from(loader: object, sampler: object) -> bool:
    own = _own(loader)
    return own.get("batch_sampler") is sampler or own.get("sampler") is sampler


def _living(classes: tuple[tuple[str, str], ...]) -> list[Any]:
    """The objects of some classes of modules that have been imported, and of classes from them."""
    kinds: set[Any] = {getattr(sys.modules.get(m), name, None) for m, name in classes} - {None}
    if not kinds:
        return []
    return objects_of(kinds)


def _trainer() -> Any:
    """The trainer; of an accelerate that works for one, the one it works for."""
    for each in _TRAINERS:  # what the collector lists first says nothing
        found = _living((each,))
        if found:
            return found[0]
    return None


def _own(thing: object) -> dict[str, Any]:
    """An object's own attributes, without running anything of its class."""
    try:
        own: dict[str, Any] = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return own


def _alive(reference: Any) -> Any:
    return reference() if reference is not None else None


def _rank() -> int | None:
    """The rank, as torch knows it or the launcher has set it."""
    found = torch_group()
    text = os.environ.get("RANK", "")
    return found[0] if found is not None else int(text) if text.isdecimal() else None
