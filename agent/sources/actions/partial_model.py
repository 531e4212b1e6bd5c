"""Runs a part of a model only, while something else is looked for.

Rules of this file: what is left out is found by how the model is built, and left out only once
a step has shown that its output is shaped as its input is. No parameter, no list of modules and no
line of the model's own is changed, so that its state is what it was as soon as all runs again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ....errors import ActRefused, ActTimedOut
from ....messages.about.act import KeepLayers, SkipAttention
from ..model.blocks import Blocks, repeated_blocks
from ..torch_types import Module, Tensor
from .bypass import Bypasses, Call, CallLook
from .ledger import Applied
from .moments.step_hooks import exchange
from .moments.step_start import StepStart
from .targets.attention import attention_modules, only_inside
from .targets.scene import Scene

_POLL_S = 0.1
_SHOWN = 8


class KeepingLayers:
    """Leaves out all repeated blocks but the first."""

    def __init__(self, asked: KeepLayers) -> None:
        if asked.count < 1:
            raise ActRefused("at least one block must run")
        self._asked = asked

    def prepare(self, scene: Scene) -> None:
        """Find the blocks, and look at the calls of a step."""
        scene.choose_model(self._asked.model)
        scene.refuse_whole_calls("running a part of the model")
        blocks = _chosen(repeated_blocks(scene.bare_model()), self._asked.inside)
        count = len(blocks.modules)
        if len({id(block) for block in blocks.modules}) < count:
            raise ActRefused(f"the {count} blocks of {blocks.name} are one and the same module")
        if self._asked.count >= count:
            raise ActRefused(f"{blocks.name} has {count} blocks, so that none would be left out")
        self._blocks = blocks
        self._part = _Part("keep-layers", f"the first {self._asked.count}")
        self._part.look(scene, blocks.modules[self._asked.count :])

    def apply(self, scene: Scene) -> Applied:
        """Leave them out."""
        kept, blocks = self._asked.count, self._blocks
        named = list(zip(blocks.names[kept:], blocks.modules[kept:], strict=True))
        what = f"blocks of {blocks.name} that run"
        return self._part.leave_out(scene, named, what, f"all {len(blocks.modules)}")

    def finish(self, scene: Scene, applied: Applied, until: float) -> Applied:
        """Wait until a step has gone without them."""
        return self._part.seen_skipped(applied, until)


class SkippingAttention:
    """Leaves out all attention but one."""

    def __init__(self, asked: SkipAttention) -> None:
        if asked.keep not in {"last", "first", "none"}:
            raise ActRefused(f"{asked.keep!r} is neither last, first nor none")
        self._asked = asked

    def prepare(self, scene: Scene) -> None:
        """Find the attention, and look at the calls of a step."""
        scene.choose_model(self._asked.model)
        scene.refuse_whole_calls("running a part of the model")
        inside = self._asked.inside
        found = attention_modules(scene.bare_model())
        if inside is not None:
            found = [(name, m) for name, m in found if f"{name}.".startswith(f"{inside}.")]
        if not found:
            where = f"in {inside}" if inside is not None else "in the model"
            raise ActRefused(f"no module {where} is attention, by its class or its name")
        self._found = found
        self._part = _Part("skip-attention", "")
        self._part.look(scene, [module for _, module in found])

    def apply(self, scene: Scene) -> Applied:
        """Leave it out."""
        called = [(name, m) for name, m in self._found if self._part.was_called(m)]
        if not called:
            names = _listed([name for name, _ in self._found])
            raise ActRefused(f"none of {names} was called in the step that was looked at")
        kept = {"last": called[-1:], "first": called[:1], "none": []}[self._asked.keep]
        left_out = [pair for pair in called if pair not in kept]
        if not left_out:
            raise ActRefused(f"{called[0][0]} is the only attention, so that none would be skipped")
        self._part.value = kept[0][0] if kept else "none"
        return self._part.leave_out(
            scene, left_out, "attention that runs", f"all {len(called)} modules"
        )

    def finish(self, scene: Scene, applied: Applied, until: float) -> Applied:
        """Wait until a step has gone without it."""
        return self._part.seen_skipped(applied, until)


class _Part:
    """The part that runs.

    Attributes:
        value: It in words.
    """

    def __init__(self, kind: str, value: str) -> None:
        self.value = value
        self._kind = kind
        self._look: CallLook | None = None
        self._bypasses: Bypasses | None = None

    def look(self, scene: Scene, modules: Sequence[Module]) -> None:
        """Begin to look between two steps; by when the action is applied, one has gone by.

        Raises:
            ActTimedOut: The training did not reach a step boundary in time.
        """
        training, began = scene.training, time.monotonic()
        self._look = CallLook(list(modules))
        scene.afterwards.callback(self._look.end)
        start = StepStart(training.safe_points, training.thread_id, self._look.begin)
        start.begin()
        while not start.wait(_POLL_S):
            is_over = time.monotonic() > scene.until or not training.is_recording()
            if is_over and start.give_up():
                raise ActTimedOut(round(time.monotonic() - began, 1))
        if start.fault is not None:
            raise start.fault

    def was_called(self, module: Module) -> bool:
        """Whether a call of a module was seen."""
        return self._look is not None and id(module) in self._look.calls

    def leave_out(
        self, scene: Scene, named: list[tuple[str, Any]], what: str, all_of_them: str
    ) -> Applied:
        """Have these modules stood in for.

        Raises:
            ActRefused: That cannot be done with one of them, or leaves nothing to train.
        """
        calls = self._calls(named)
        idle = only_inside(scene.bare_model(), [module for _, module in named])
        others = [h for h in scene.hooks if h.kind != self._kind]
        more = [p for h in others if isinstance(h, Bypasses) for p in h.idle]
        _refuse_nothing_left(scene, [*idle, *more])
        new = Bypasses(self._kind, self.value, calls, idle, scene.recording)
        change, undo = exchange(scene.hooks, self._kind, new, [], what=what, usual=all_of_them)
        self._bypasses = new
        note = (
            f"skipped, each giving back a copy of its input: {_listed([n for n, _ in named])};"
            f" their {len(idle)} parameters ({sum(p.numel() for p in idle):,} numbers) get no"
            " gradient"
        )
        return Applied(changes=(change,), notes=(note,), undo=undo, kind=self._kind, hooks=new)

    def seen_skipped(self, applied: Applied, until: float) -> Applied:
        """Say so where nothing has been skipped."""
        bypasses = self._bypasses
        if bypasses is None or bypasses.has_skipped.wait(max(0.0, until - time.monotonic())):
            return applied
        note = "nothing has been skipped yet: no step has called these modules as the last one did"
        return applied._replace(notes=(*applied.notes, note))

    def _calls(self, named: list[tuple[str, object]]) -> list[tuple[Any, Call]]:
        """How each of some modules was called; the look is over."""
        assert self._look is not None
        self._look.end()
        calls = []
        for name, module in named:
            call = self._look.calls.get(id(module))
            problem = "was not called in the step that was looked at"
            problem = problem if call is None else call.problem or ""
            if call is None or problem:
                raise ActRefused(f"{name} cannot be left out: it {problem}")
            calls.append((module, call))
        return calls


def _chosen(rows: list[Blocks], inside: str | None) -> Blocks:
    """The blocks that are meant.

    Raises:
        ActRefused: There are none, or several.
    """
    if not rows:
        raise ActRefused(
            "the model has no repeated blocks: no ModuleList or Sequential with several modules"
            " of one class, one behind the other"
        )
    names = _listed([f"{row.name} ({len(row.modules)})" for row in rows])
    if inside is not None:
        rows = [row for row in rows if row.name == inside]
        if not rows:
            raise ActRefused(f"{inside} has no repeated blocks; there are those of {names}")
    elif len(rows) > 1:
        raise ActRefused(
            f"the model has repeated blocks in several places: {names}",
            help="Nothing was changed. --in NAME says which are meant.",
        )
    return rows[0]


def _refuse_nothing_left(scene: Scene, idle: list[Tensor]) -> None:
    """Make sure that every optimizer still has something to step."""
    left_out = {id(parameter) for parameter in idle}
    for optimizer in scene.optimizers():
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        if all(id(p) in left_out or not p.requires_grad for p in parameters):
            raise ActRefused(
                "all that an optimizer trains is in what would be left out, so that its step would"
                " find no gradient"
            )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
