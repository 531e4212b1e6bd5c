"""What actions act on: the model, the optimizer and what belongs to them.

Rules of this file: made in a thread of the agent's, because to look through all objects of the
process takes some tenths of a second; it keeps them alive only as long as the action is in hand.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .....errors import ActRefused
from .....messages.about.act import MARKS
from .....messages.rank_paths import of_ranks
from ...calls.names.class_names import modules_in, parameters_in
from ...calls.names.module_names import outermost
from ...calls.observation import is_compiled
from ...model.known_names import scalers_there_are, schedulers_among, schedulers_there_are
from ...torch_types import Module, Optimizer
from .chosen import Chosen, chosen_of

if TYPE_CHECKING:
    from .....ring.writer import RingWriter
    from .....tables import Table
    from ....recording.training import TorchTraining
    from ...shared.recording import Recording
    from ..moments.step_hooks import StepHooks
    from .searches import Searches

_POLL_S = 0.05
_SHARE_OF_RANKS = 0.75
"""How much of the time ranks wait for a first step: the rest is for finding one in common."""
_WRAPPERS = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel", "module"),
    ("torch.nn.parallel.data_parallel", "DataParallel", "module"),
    ("torch._dynamo.eval_frame", "OptimizedModule", "_orig_mod"),
)


class Found(NamedTuple):
    """What was looked for before, because that takes time.

    Attributes:
        schedulers: The one of each optimizer that is part of no other; None where there is none.
        feed: What is known of the loader that has given the most batches.
    """

    schedulers: list[Any]
    scaler: Any
    feed: Any


class Scene:
    """What there is to act on.

    Attributes:
        hooks: What hangs on the training by actions that are in force.
        until: When nobody waits for the action any more, by the monotonic clock.
        number: The number of the action.
        ranks: How many ranks apply it at the same step; None for this one by itself.
        job: What the job is called.
        ring: Gives the ring of a table, which is made when it is first asked for.
        afterwards: What is done as the action ends, whatever becomes of it.
    """

    def __init__(
        self,
        training: TorchTraining,
        hooks: list[StepHooks],
        searches: Searches,
        until: float,
        *,
        ring: Callable[[Table], RingWriter],
        number: int = 0,
        ranks: int | None = None,
        job: str | None = None,
    ) -> None:
        self.training = training
        self.hooks = hooks
        self.until = until
        self._searches = searches
        self.ring = ring
        self.number = number
        self.ranks = ranks
        self.job = job
        self.names = training.names()
        self.afterwards = contextlib.ExitStack()
        self._model: Any = None

    @property
    def recording(self) -> Recording:
        """What the sources share."""
        return self.training.recording

    def optimizer(self) -> Any:
        """The optimizer whose steps are counted; the first step is waited for.

        Raises:
            ActRefused: There is none.
        """
        began = time.monotonic()
        share = 1.0 if self.ranks is None else _SHARE_OF_RANKS
        patience_s = (self.until - began) * share
        while (found := self.names.get("optimizer")) is None:
            left_s = began + patience_s - time.monotonic()
            if left_s <= 0:
                raise ActRefused(
                    "no optimizer has stepped in this process",
                    help="Nothing was changed. Its first step is waited for as long as --timeout"
                    " SECONDS says.",
                )
            time.sleep(min(_POLL_S, left_s))
        return found

    def refuse_unbegun(self) -> None:
        """Make sure that ranks that are to find a step in common have begun to make steps.

        Raises:
            ActRefused: This one has not, so nobody knows how long the others would wait for it.
        """
        if self.ranks is None or self.training.thread_id():
            return
        whole = shlex.quote(of_ranks(self.job))
        raise ActRefused(
            "the training has not begun a step yet: no model has been called, and no optimizer has"
            " stepped",
            help="Nothing was changed. Ask again once all ranks train;"
            f" `probing -t {whole} backtrace` shows where they are.",
        )

    def optimizers(self) -> list[Any]:
        """All that have stepped, the one that is counted first."""
        first = self.optimizer()
        return [first, *(o for o in self.recording.objects.optimizers.alive() if o is not first)]

    def chosen(self, wanted: str | None) -> Chosen:
        """The optimizers that an action is to act on: all, or the one that is named.

        Raises:
            ActRefused: None goes by that name or number, or several do.
        """
        optimizers = self.recording.objects.optimizers.alive() or [self.optimizer()]
        names = [self.name_of(optimizer) for optimizer in optimizers]
        return chosen_of(optimizers, names, self._idle(), wanted)

    def name_of(self, optimizer: Optimizer) -> str:
        """What an optimizer is called."""
        return self.recording.objects.optimizer_names.name_of(optimizer)

    def listed(self, optimizers: list[Optimizer]) -> str:
        """The names of optimizers in a sentence."""
        return ", ".join(map(self.name_of, optimizers))

    def _idle(self) -> list[str]:
        """The names of optimizers that are there, and have not stepped."""
        stepped = {id(optimizer) for optimizer in self.optimizers()}
        made = self.recording.objects.made.alive()
        return [self.name_of(optimizer) for optimizer in made if id(optimizer) not in stepped]

    def schedulers(self, optimizer: Optimizer) -> list[Any]:
        """Those of an optimizer, parts of others included."""
        there = self._searches.find("schedulers", self.optimizer(), schedulers_there_are)
        return schedulers_among(there, optimizer)

    def model(self) -> Any:
        """The root module that the action acts on.

        Raises:
            ActRefused: None has been called.
        """
        found = self._model or self.names.get("model")
        if found is None:
            raise ActRefused("no model has been called in this process")
        return found

    def choose_model(self, wanted: str | None) -> None:
        """Have the action act on the model of a name.

        Raises:
            ActRefused: There is none, or there are several and none was named.
        """
        models = [self.model(), *self.other_models()]
        names = [self.recording.objects.models.name_of(model) for model in models]
        if wanted is None and len(models) > 1:
            raise ActRefused(
                f"there are {len(models)} models: {', '.join(names)}",
                help="Nothing was changed. --model NAME says which is meant.",
            )
        if wanted is not None:
            found = [model for model, name in zip(models, names, strict=True) if name == wanted]
            if not found:
                raise ActRefused(f"no model is called {wanted}; there are {', '.join(names)}")
            self._model = found[0]

    def other_models(self) -> list[Any]:
        """Further root modules with parameters, that are no part of the first."""
        inside = {id(module) for module in modules_in(self.model())}
        roots = outermost(self.recording.objects.roots.alive())
        return [
            r for r in roots if id(r) not in inside and next(parameters_in(r), None) is not None
        ]

    def found_state(self) -> Found:
        """What belongs to the state of the training and must be looked for."""
        loaders = self.training.dataloaders
        feeds = [feed for _, feed in loaders.feeds()] if loaders is not None else []
        scalers = self._searches.find("scalers", self.optimizer(), scalers_there_are)
        return Found(
            schedulers=[self._scheduler(optimizer) for optimizer in self.optimizers()],
            scaler=next(iter(scalers), None),
            feed=max(feeds, key=lambda feed: feed.loader.given, default=None),
        )

    def _scheduler(self, optimizer: Optimizer) -> Any:
        """The scheduler of an optimizer that is part of no other; None where there is none."""
        schedulers = self.schedulers(optimizer)
        parts = {id(part) for s in schedulers for part in vars(s).get("_schedulers", ())}
        return next((s for s in reversed(schedulers) if id(s) not in parts), None)

    def has_scaler(self) -> bool:
        """Whether there is a gradient scaler that is not switched off."""
        scalers = self._searches.find("scalers", self.optimizer(), scalers_there_are)
        return any(vars(scaler).get("_enabled") for scaler in scalers)

    def bare_model(self) -> Any:
        """The root module without what is wrapped around it."""
        model = self.model()
        while (inner := _inside(model)) is not None:
            model = inner
        return model

    def is_replicated(self) -> bool:
        """Whether all ranks step with the same gradients: a DDP over all of them has made them so.

        One over some of them is one shard's or stage's: the others have gradients of their own.
        """
        replica = self.replica()
        return replica is not None and int(replica.process_group.size()) == self.world_size()

    def averaged(self) -> set[int]:
        """The parameters, by identity, that have the same gradients on all ranks."""
        replica = self.replica() if self.is_replicated() else None
        if replica is None:
            return set()
        named = replica.module.named_parameters(remove_duplicate=False)
        ignored = replica.parameters_to_ignore
        return {id(parameter) for name, parameter in named if name not in ignored}

    def replica(self) -> Any:
        """The DDP in what the root module is wrapped in; None where there is none."""
        model = self._model or self.names.get("model")
        while model is not None and not _is(model, *_WRAPPERS[0][:2]):
            model = _inside(model)
        return model

    def refuse_whole_calls(self, what: str) -> None:
        """Make sure that each module of the model is called in Python, and may be left out.

        Raises:
            ActRefused: It is compiled, scripted, sharded, or wrapped so that all must take part.
        """
        self.refuse_sharded(what, "Have the script build a smaller model.")
        why = self._calls_whole()
        if why is not None:
            raise ActRefused(f"{what} is not done here: {why[0]}",
                             help=f"Nothing was changed. {why[1]}")  # fmt: skip

    def world_size(self) -> int:
        """How many ranks the job has, as torch knows."""
        group = self._group()
        return int(group.get_world_size()) if group is not None else 1

    def rank(self) -> int:
        """Which of them this one is."""
        group = self._group()
        return int(group.get_rank()) if group is not None else 0

    def refuse_alone(self, what: str) -> None:
        """Make sure that all copies of a model are treated alike.

        Raises:
            ActRefused: This rank is to change by itself what DDP keeps equal on all of them.
        """
        size = self.world_size()
        if size > 1 and self.ranks != size and self.replica() is not None:
            raise ActRefused(
                f"{what} on {self.ranks or 1} of {size} ranks would let the copies of the model"
                " drift apart that DistributedDataParallel keeps equal",
                help="Nothing was changed. Ask all ranks by one command:"
                f" `probing -t {shlex.quote(of_ranks(self.job))} act ...`.",
            )

    def refuse_sharded(self, what: str, instead: str) -> None:
        """Make sure that this rank has all of every parameter.

        Raises:
            ActRefused: It has a part: FSDP, tensor parallelism, DeepSpeed, or a sharded optimizer.
        """
        why = self._sharded()
        if why is not None:
            raise ActRefused(f"{what} of a sharded training is not done from outside: {why}",
                             help=f"Nothing was changed. {instead}")  # fmt: skip

    def _sharded(self) -> str | None:
        """How the training is sharded; None where it is not."""
        tensor = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
        model = self.model()
        if tensor is not None and any(isinstance(p, tensor) for p in parameters_in(model)):
            return "its parameters are DTensors, of which each rank has a part"
        if any(_is(m, "torch.distributed.fsdp", "FullyShardedDataParallel") for m in _all(model)):
            return "the model is in FullyShardedDataParallel"
        if any(type(m).__module__.partition(".")[0] == "deepspeed" for m in _all(model)):
            return "the model is DeepSpeed's"
        if _is(self.optimizer(), "torch.distributed.optim", "ZeroRedundancyOptimizer"):
            return "its optimizer is a ZeroRedundancyOptimizer"
        return None

    def place(self) -> tuple[str, int]:
        """Where this rank is, by something that is alike on all ranks: a mark and a number."""
        group = self._group()
        if group is not None and group.get_world_size() > 1:
            own = getattr(self.replica(), "process_group", None)
            own = own or group.distributed_c10d._get_default_group()
            if (count := self._counted_in(own)) is not None:
                return MARKS[2], count
            with contextlib.suppress(RuntimeError):  # of a backend that does not count
                begun = own._get_sequence_number_for_group()
                if begun:
                    return MARKS[0], int(begun)
        return MARKS[1], self.training.step() or 0

    def _counted_in(self, group: Any) -> int | None:
        """The collectives of a group of gloo, where all have been recorded; else None.

        Its own number has messages in it, and some collectives several times on some ranks.
        """
        recorded = self.recording.collectives
        found = None if recorded is None else recorded.groups.by_id.get(id(group))
        if found is None or not found.is_whole or not found.count:
            return None
        is_gloo = "gloo" in str(sys.modules["torch"].distributed.get_backend(group))
        return found.count if is_gloo else None

    def _calls_whole(self) -> tuple[str, str] | None:
        """Why no module may be left out, and what to do instead; None where each may."""
        torch: Any = sys.modules["torch"]
        wrapper: Any = self.model()
        while (inner := _inside(wrapper)) is not None:
            if _is(wrapper, *_WRAPPERS[0][:2]) and not wrapper.find_unused_parameters:
                return (
                    "the model is in DistributedDataParallel, which waits for a gradient of every"
                    " parameter",
                    "DistributedDataParallel(find_unused_parameters=True) allows it.",
                )
            if _is(wrapper, *_WRAPPERS[0][:2]) and wrapper.static_graph:
                return (
                    "the model is in DistributedDataParallel with a static graph",
                    "Leave static_graph out.",
                )
            if _is(wrapper, *_WRAPPERS[1][:2]):
                return (
                    "the model is in DataParallel, which copies it at each step",
                    "Use one device.",
                )
            wrapper = inner
        if any(is_compiled(module) for module in _all(self.model())):
            return "the model is compiled", "Start it without torch.compile."
        if any(isinstance(module, torch.jit.ScriptModule) for module in _all(self.model())):
            return "the model is TorchScript", "Start it without torch.jit."
        return None

    def _group(self) -> Any:
        """torch.distributed, while a process group exists."""
        distributed: Any = sys.modules.get("torch.distributed")
        is_there = distributed is not None and distributed.is_available()
        return distributed if is_there and distributed.is_initialized() else None


def _all(model: Module) -> list[Any]:
    return list(modules_in(model))


def _inside(model: Module) -> Any:
    """What a wrapper is wrapped around; None where it is none."""
    for module, name, attribute in _WRAPPERS:
        if _is(model, module, name):
            return getattr(model, attribute)
    return None


def _is(thing: object, module: str, name: str) -> bool:
    """Whether a thing is of a class of a module, if that has been imported."""
    cls = getattr(sys.modules.get(module), name, None)
    return isinstance(cls, type) and isinstance(thing, cls)
