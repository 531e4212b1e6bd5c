"""Every storage of memory that tensors hold, once, and what it is used for.

Rules of this file: runs while the training stands still, or in the training thread itself. What a
storage is for follows from who holds it, never from a name: a parameter is what a module
registered or an optimizer steps, an activation what autograd saved for the backward pass. Views,
tied weights and aliases share a storage, which counts once, at its full size. No data is read, no
code of a subclass runs, nothing stays referenced.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import compress, repeat, starmap
from operator import add, not_
from types import GeneratorType, ModuleType
from typing import Any, NamedTuple

from ....safety.collector import without_collections
from ....tables import CATEGORIES
from ..calls.names.class_names import class_name
from ..calls.names.module_names import outermost, walk
from ..model.tensor_facts import name_of
from ..shared.gradients import gradients_of
from ..shared.recording import Recording
from ..torch_types import Module, Optimizer, Tensor
from .bounded.loose_tensors import LooseTensors, Place, leave_out, shape_of
from .bounded.sights import LONGEST_S, Birth, Head, Limits, Sight
from .held_by_frames import held_by_frames, held_by_generators
from .living import MRO, Survey, living
from .quantized import numbers_in, numbers_in_words
from .saved_tensors import Reach, Saved, saved_tensors, tensors_in
from .tensor_parts import parts_of

_FIRST_WINS = (
    "parameters",
    "gradients",
    "optimizer_state",
    "buffers",
    "inputs",
    "activations",
    "temporary",
    "other",
)
_RANKS = {category: rank for rank, category in enumerate(_FIRST_WINS)}
_PATIENCE_S = 0.1
"""How long others that let go of gradients are waited for, where several threads train."""
assert set(_FIRST_WINS) == set(CATEGORIES)


class Storage(NamedTuple):
    """One storage.

    Attributes:
        address: Where it begins.
        device: The device it lies on, such as `cpu` or `cuda:0`.
        bytes: All of it, whatever part of it tensors show.
        dtype: The type of a tensor over it, that which says what it is used for.
        shape: That tensor's sizes.
        category: One of `CATEGORIES`.
        module: The module it belongs to, by its name in its root; None where that is not known.
        name: What that module, or the optimizer, calls it; None where that is not known.
        requires_grad: Whether that tensor does.
        tensors: How many tensors over it were met.
        number: Of an activation: when the node that saved it was made, in the count of its thread.
        tensor_id: The `id` of a tensor over it, of that one where Python has it; None where Python
            has none.
        numbers: How many numbers of eight bits or fewer it holds; None where it holds others.
        is_adapter: Whether it belongs to parameters that are trained in a model of which most are
            not.
        identity: What tells it from all others that are alive; None where births are not noted.
        born: The step in which it came; None where that was not seen.
        frame: The line of the program that made it; None where that was not seen.
    """

    address: int
    device: str
    bytes: int
    dtype: str
    shape: tuple[int, ...]
    category: str
    module: str | None
    name: str | None
    requires_grad: bool
    tensors: int
    number: int | None
    tensor_id: int | None
    numbers: int | None = None
    is_adapter: bool = False
    identity: int | None = None
    born: int | None = None
    frame: str | None = None


_of_fields: Any = functools.partial(tuple.__new__, Storage)
_NOT_KNOWN: Birth = (None, None, None)


def storages_now(
    recording: Recording | None,
    results: Iterable[object] = (),
    survey: Survey | None = None,
    sight: Sight | None = None,
    limits: Limits | None = None,
) -> list[Storage]:
    """Every storage that is alive now.

    Args:
        results: Tensors whose graphs are to be walked beside those of all that Python holds.
        survey: What `survey_now` has found; without it all is looked for now, which takes longer.
        sight: Takes note of each storage, and says what is known of its birth.
        limits: How long it may take, and what it has left out. Without any it tells of all tensors
            and goes through graphs of autograd for half a second.
    """
    torch: Any = sys.modules["torch"]
    if limits is not None:
        limits.begin()
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), without_collections():
        return _Look(torch, recording, limits).storages(results, survey, sight)


def survey_now() -> Survey:
    """Look for what will be needed, beside the training; touches no tensor."""
    return Survey(_wanted(sys.modules["torch"]))


def _wanted(torch: ModuleType) -> list[type]:
    data = sys.modules.get("torch.utils.data")
    wanted = [torch.Tensor, torch.nn.Module, torch.optim.Optimizer, GeneratorType]
    return [*wanted, data.Dataset] if data is not None else wanted


class _Claim:
    """What is known of one storage so far."""

    __slots__ = (
        "bytes", "is_adapter", "module", "name", "number", "numbers", "rank", "tensor",
        "tensor_id", "tensors",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bytes, self.tensors, self.rank = 0, 0, len(_FIRST_WINS)
        self.tensor: Any = None
        self.module: str | None = None
        self.name: str | None = None
        self.number: int | None = None
        self.tensor_id: int | None = None
        self.numbers: int | None = None
        self.is_adapter = False

    def join(self, tensor: Tensor, count: int, size: int) -> None:
        """Take in that tensors without a purpose are over it, too."""
        self.tensors += count
        self.bytes = max(self.bytes, size)
        if self.tensor_id is None:
            self.tensor_id = id(tensor)
        if self.numbers is None:
            self.numbers = numbers_in(tensor, tensor, size)


class _Look:
    """One look at the whole process."""

    def __init__(
        self, torch: ModuleType, recording: Recording | None, limits: Limits | None
    ) -> None:
        self._torch = torch
        self._limits = limits
        self._loose = LooseTensors()
        self._recording = recording
        self._claims: dict[Place, _Claim] = {}
        self._met: set[int] = set()  # tensors, by identity
        self._parameters: list[Any] = []
        self._names: dict[int, tuple[str, str]] = {}  # of parameters, by identity
        self._adapters: set[int] = set()  # parameters, by identity

    def storages(
        self, results: Iterable[object], survey: Survey | None, sight: Sight | None
    ) -> list[Storage]:
        """Look."""
        torch, recording = self._torch, self._recording
        found = living(_wanted(torch), survey)
        tensors, modules, optimizers, generators, *datasets = found
        roots: list[Any] = []
        if recording is not None:  # also those that `gc.freeze` has put out of sight
            roots = recording.objects.roots.alive()
            optimizers += recording.objects.optimizers.alive()
        attributes = self._modules(roots, modules)
        self._optimizers(optimizers)
        requiring = compress(tensors, map(torch.Tensor.requires_grad.__get__, tensors))
        ending = {id(t): t for t in (*self._parameters, *requiring)}.values()
        self._gradients(ending)
        self._mark_adapters()
        self._all("inputs", recording.objects.inputs.alive() if recording is not None else ())
        self._datasets([dataset for own in datasets for dataset in own])
        nodes = [node for t in (*ending, *results) if (node := t.grad_fn) is not None]
        reach = Reach(LONGEST_S) if self._limits is None else self._limits.reach
        for saved in saved_tensors(nodes, reach):
            self._save(saved)
        self._all("temporary", held_by_frames(torch.Tensor))
        self._all("temporary", held_by_generators(generators, torch.Tensor))
        for module, name, tensor in attributes:
            self._claim("other", tensor, module, name)
        loose = compress(tensors, map(not_, map(self._met.__contains__, map(id, tensors))))
        return self._told(list(loose), sight)

    def _told(self, loose: list[Tensor], sight: Sight | None) -> list[Storage]:
        """What is known of all storages, also of those over which are only loose tensors."""
        limits = self._limits
        left_out: Collection[int] = frozenset()
        rest: Sequence[Tensor] = ()
        claim = functools.partial(self._claim, "other")
        if limits is None:
            self._loose.list_all(loose, claim)
        else:
            left_out = left_out if sight is None else sight.left_out
            rest = self._loose.list_newest(loose, claim, limits, left_out)
        self._join(left_out)
        heads = [*starmap(_head, self._claims.items()), *self._loose.heads()]
        own = [claim.tensor.untyped_storage() for claim in self._claims.values()]
        own += self._loose.own.values()
        births: Iterable[Birth] = repeat(_NOT_KNOWN)
        if sight is not None:
            births = sight.see(heads, own)
            if rest:
                leave_out(rest, sight, own)
        return list(map(_of_fields, map(add, heads, births)))

    def _join(self, left_out: Collection[int]) -> None:
        """Have each storage in one place, and those that are left out in none."""
        for place in self._claims.keys() & self._loose.over.keys():
            self._claims[place].join(*self._loose.take(place))
        if left_out:
            for place, claim in list(self._claims.items()):
                if claim.tensor.untyped_storage()._cdata in left_out:
                    del self._claims[place]

    def _modules(self, called: list[Any], modules: list[Module]) -> list[tuple[str, str, Any]]:
        """Claim parameters and buffers; returns the tensors in plain attributes of modules.

        Args:
            called: The roots by which modules are named; those in none of them come after.
        """
        attributes: list[tuple[str, str, Any]] = []
        seen: set[int] = set()
        whole = [module for module in modules if "_parameters" in vars(module)]
        for root in (*outermost(called), *outermost(whole)):
            first = len(self._parameters)
            for path, module in walk(root, "", seen):
                self._module(module, path or class_name(module), attributes)
            self._adapters.update(adapters_among(self._parameters[first:]))
        return attributes

    def _module(self, module: Any, place: str, attributes: list[tuple[str, str, object]]) -> None:
        for name, tensor in list(module._parameters.items()):
            if tensor is not None:
                self._names.setdefault(id(tensor), (place, name))
                self._parameters.append(tensor)
                self._claim("parameters", tensor, place, name)
        for name, tensor in list(module._buffers.items()):
            if tensor is not None:
                self._claim("buffers", tensor, place, name)
                self._count_words(module, name, tensor)
        for name, value in list(vars(module).items()):
            if type(value) is self._torch.Tensor:
                attributes.append((place, name, value))

    def _count_words(self, module: Module, name: str, tensor: Tensor) -> None:
        """See whether a buffer of words is full of smaller numbers."""
        for part in parts_of(tensor):
            claim = self._claims[part.device, part.address]
            claim.numbers = claim.numbers or numbers_in_words(module, name, part.bytes)

    def _optimizers(self, optimizers: list[Optimizer]) -> None:
        """Claim the states, and the parameters that belong to no module."""
        plain = self._torch.Tensor
        for optimizer in {id(o): o for o in optimizers}.values():
            facts = vars(optimizer)
            for group in list(facts.get("param_groups", ())):
                for parameter in list(group["params"]):
                    if plain in MRO(type(parameter)):
                        self._parameters.append(parameter)
                        self._claim(
                            "parameters", parameter, *self._names.get(id(parameter), (None, None))
                        )
                settings = [value for key, value in group.items() if key != "params"]
                self._all("optimizer_state", tensors_in(settings, plain))
            for parameter, state in list(dict.items(facts.get("state", {}))):
                module, name = self._names.get(id(parameter), (None, None))
                parts = state.items() if type(state) is dict else [("", state)]
                for key, value in list(parts):
                    own = f"{name}.{key}" if name and key else str(key) or name
                    for tensor in tensors_in(value, plain):
                        self._claim("optimizer_state", tensor, module, own)

    def _gradients(self, tensors: Iterable[Tensor]) -> None:
        """Claim the gradients of all leaves; another tensor warns when it is asked for one."""
        leaves = [tensor for tensor in tensors if tensor.requires_grad and tensor.is_leaf]
        found = gradients_of(
            leaves,
            self._recording,
            patience_s=_PATIENCE_S,
            is_still=self._limits is not None and self._limits.is_still,
        )
        if self._limits is not None:
            self._limits.knows_gradients = found is not None
        for tensor, gradient in zip(leaves, found or (), strict=False):
            if gradient is not None:
                module, name = self._names.get(id(tensor), (None, None))
                self._claim("gradients", gradient, module, name)

    def _mark_adapters(self) -> None:
        """Say of what belongs to adapters that it does."""
        places = {self._names[key] for key in self._adapters if key in self._names}
        state = _RANKS["optimizer_state"]
        lasting = {_RANKS[each] for each in ("parameters", "gradients", "optimizer_state")}
        for claim in self._claims.values():
            own = (claim.name or "").rpartition(".")[0] if claim.rank == state else claim.name
            claim.is_adapter = claim.rank in lasting and (claim.module, own) in places

    def _datasets(self, datasets: list[object]) -> None:
        """Claim what batches are made from."""
        for dataset in datasets:
            for name, value in list(getattr(dataset, "__dict__", {}).items()):
                for tensor in tensors_in(value, self._torch.Tensor):
                    self._claim("inputs", tensor, None, f"{type(dataset).__name__}.{name}")

    def _save(self, saved: Saved) -> None:
        """Claim what autograd keeps."""
        self._claim("activations", saved.tensor, number=saved.number, is_python=False)

    def _all(self, category: str, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self._claim(category, tensor)

    def _claim(
        self,
        category: str,
        tensor: Tensor,
        module: str | None = None,
        name: str | None = None,
        *,
        number: int | None = None,
        is_python: bool = True,
    ) -> None:
        """Say what a tensor's storages are for; who says it first, and better, is believed."""
        rank = _RANKS[category]
        is_new = is_python and id(tensor) not in self._met
        if is_python:
            self._met.add(id(tensor))
        for part in parts_of(tensor):
            key = (part.device, part.address)
            claim = self._claims.get(key)
            if claim is None:
                claim = self._claims[key] = _Claim()
            claim.bytes = max(claim.bytes, part.bytes)
            claim.tensors += is_new
            earlier = number is not None and (claim.number is None or number < claim.number)
            is_better = rank < claim.rank or (rank == claim.rank and earlier)
            if claim.numbers is None:
                claim.numbers = numbers_in(tensor, part.tensor, part.bytes)
            if is_better:
                claim.rank, claim.tensor, claim.number = rank, part.tensor, number
                claim.module, claim.name = module, name
            if is_python and (is_better or claim.tensor_id is None):
                claim.tensor_id = id(part.tensor)


def adapters_among(parameters: list[Tensor]) -> set[int]:
    """The parameters that are trained in a model most of which is not, by identity."""
    sizes = {id(p): p.numel() for p in parameters}
    trained = {id(p) for p in parameters if p.requires_grad}
    own = sum(sizes[key] for key in trained)
    return trained if trained and own < sum(sizes.values()) - own else set()


def _head(place: Place, claim: _Claim) -> Head:
    """What is known of one storage, without any reference to a tensor."""
    tensor = claim.tensor
    return (
        place[1],
        place[0],
        claim.bytes,
        name_of(tensor.dtype),
        shape_of(tensor),
        _FIRST_WINS[claim.rank],
        claim.module,
        claim.name,
        bool(tensor.requires_grad),
        claim.tensors,
        claim.number,
        claim.tensor_id,
        claim.numbers,
        claim.is_adapter,
    )
