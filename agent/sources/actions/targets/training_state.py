"""All that a training needs to go on from a step, as plain containers and tensors.

Rules of this file: runs in the training thread between two steps. Nothing here is of a class that
``torch.load(weights_only=True)`` does not know, so far as it is ours; what a script's own scheduler
keeps is seen as the file is read back.
"""

from __future__ import annotations

import copy
import random
import sys
from typing import TYPE_CHECKING, Any

from .chosen import listed

if TYPE_CHECKING:
    from .scene import Found, Scene


def state_of(scene: Scene, found: Found) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The state, and what is to be said of it."""
    torch = sys.modules["torch"]
    first, *others = scene.optimizers()
    state: dict[str, Any] = {
        "format": "probing checkpoint 1",
        "torch": str(torch.__version__),
        "step": scene.training.step(),
        "model": scene.bare_model().state_dict(),
        "optimizer": first.state_dict(),
        "rng": _generators(scene),
    }
    models = [scene.model(), *scene.other_models()]
    state["names"] = {
        "models": [scene.recording.objects.models.name_of(model) for model in models],
        "optimizers": [scene.name_of(optimizer) for optimizer in (first, *others)],
    }
    notes: tuple[str, ...] = ()
    if others or models[1:]:
        told = "; ".join(f"{kind}: {listed(names)}" for kind, names in state["names"].items())
        notes = (f"in it are the {told}",)
    if others:
        state["other_optimizers"] = [other.state_dict() for other in others]
    if models[1:]:
        state["other_models"] = [model.state_dict() for model in models[1:]]
    scheduler, *more = found.schedulers
    if scheduler is not None:
        state["scheduler"] = scheduler.state_dict()
    if any(one is not None for one in more):
        state["other_schedulers"] = [None if one is None else one.state_dict() for one in more]
    if found.scaler is not None:
        state["scaler"] = found.scaler.state_dict()
    if found.feed is not None:
        state["sampler"] = {"batches_given": found.feed.loader.given}
    else:
        notes += ("no DataLoader was seen, so the position in the data is not in it",)
    return state, notes


def bytes_of(value: object) -> int:
    """What the tensors in containers take; each storage once."""
    return sum(_storages(value).values())


def copied(value: object) -> Any:
    """Containers with copies of the tensors, on the host; what shares a storage still does."""
    return _copied(value, {})


def _generators(scene: Scene) -> dict[str, Any]:
    torch: Any = sys.modules["torch"]
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, gauss = numpy.random.get_state()
        states["numpy"] = (name, keys.tolist(), int(position), int(has_gauss), float(gauss))
    device = scene.training.accelerator.generator_states()
    if device is not None:
        states["cuda"] = device
    return states


def _storages(value: object, found: dict[int, int] | None = None) -> dict[int, int]:
    """The storages of the tensors in containers: address and bytes."""
    found = {} if found is None else found
    if isinstance(value, sys.modules["torch"].Tensor):
        if value.layout == sys.modules["torch"].strided:
            storage = value.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    elif isinstance(value, dict):
        for part in value.values():
            _storages(part, found)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _storages(part, found)
    return found


def _copied(value: Any, storages: dict[int, Any]) -> Any:
    """See `copied`."""
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return value.detach().cpu().clone()
        storage = value.untyped_storage()
        if storage.data_ptr() not in storages:
            host = storage.cpu()
            storages[storage.data_ptr()] = host if host is not storage else storage.clone()
        taken = torch.empty(0, dtype=value.dtype)
        taken.set_(
            storages[storage.data_ptr()], value.storage_offset(), value.size(), value.stride()
        )
        taken = taken.conj() if value.is_conj() else taken
        return torch._neg_view(taken) if value.is_neg() else taken
    if isinstance(value, dict):
        alike = {} if type(value) is dict else copy.copy(value)  # with a default, or `_metadata`
        for key, part in value.items():
            alike[key] = _copied(part, storages)
        return alike
    if type(value) in {list, tuple}:
        return type(value)(_copied(part, storages) for part in value)
    return value
