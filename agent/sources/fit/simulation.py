"""The step of a training as it is and as it is asked for, run on copies without data.

Rules of this file: runs in a thread of the agent while the training is held. Each run has a copy of
its own, so that what one changes is not there in the next.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ....errors import FitRefused, FitTimedOut
from ....messages.about.fit import FitAnswer, FitPart, FitPeak, FitRequest, FitShape
from ...on_demand.memory_room import Room, device_room, host_room
from .fake_copy import FakeCopy
from .fake_step import Peak, Step, fake_mode, run_step
from .layers import Layers, check_layers, find_layers, resize_layers
from .plain_copies import things_in
from .step_look import Given, SeenStep, plain_result
from .stepped_in_pass import InPass
from .surroundings import Surroundings, left_behind


class Simulation:
    """The two runs of a step on copies."""

    def __init__(self, seen: SeenStep, check: Callable[[], None]) -> None:
        self._torch: Any = sys.modules["torch"]
        root = seen.root()
        if root is None:
            raise FitTimedOut("the model has gone meanwhile")
        self._seen = seen
        self._root: Any = root
        self._check = check
        self._sizes = seen.sizes()
        self._blocks: Layers | None = find_layers(root)
        self._hooks = 0
        self._around: Surroundings | None = None
        self._labels: list[Any] = []
        self._given: list[Any] = []
        self._notes: list[str] = []
        device = next(iter(root.parameters())).device
        self._device = str(device)

    def run(self, request: FitRequest) -> tuple[FitPeak, FitPeak]:
        """The peak of the step as it is, and of that which is asked for."""
        batch, seq = self._sizes
        if request.seq is not None and seq is None:
            raise FitRefused(
                "the model is not given tokens, so that --seq means nothing for it",
                help="A length is that of an integer tensor with two dimensions.",
            )
        if request.batch is not None and not any(
            g.shape for g in things_in(self._seen.arguments, Given)
        ):
            raise FitRefused(
                "the model is given no tensor, so that --batch means nothing for it",
                help="`fit --from-measured` goes by what the steps have taken.",
            )
        if request.layers is not None:
            check_layers(self._root, self._blocks)
        count = self._blocks.number if self._blocks else None
        shape = FitShape(batch=batch, seq=seq, layers=count)
        asked = FitShape(
            batch=request.batch or batch, seq=request.seq or seq, layers=request.layers or count
        )
        modes: list[Any] = []
        try:
            now = self._peak_of(shape, modes)
            peaks = now, (now if asked == shape else self._peak_of(asked, modes))
        except (FitRefused, FitTimedOut) as error:  # what it refers to holds the copies
            error.__traceback__ = error.__cause__ = error.__context__ = None
            self._forget(modes)
            raise
        except RecursionError:
            raise FitRefused("the objects that the model holds are nested too deeply") from None
        self._forget(modes)
        return peaks

    def answer(self, now: FitPeak, asked: FitPeak, held_s: float, accelerator: Any) -> FitAnswer:
        """All that is known, after the training goes on."""
        seen, blocks = self._seen, self._blocks
        is_host = self._device == "cpu"
        room: Room = host_room(now.bytes) if is_host else device_room(accelerator)
        return FitAnswer(
            model=type(self._root).__name__,
            device=self._device,
            step=seen.step,
            now=now,
            asked=asked,
            micro_batches=seen.passes,
            blocks=blocks.path if blocks else None,
            block_class=blocks.block if blocks else None,
            config_field=blocks.field if blocks else None,
            loss=seen.loss.describe() if seen.loss else "",
            measured_bytes=room.measured_bytes,
            fixed_bytes=room.fixed_bytes,
            room_bytes=room.bytes,
            room=room.limit,
            held_s=held_s,
            notes=tuple(self._all_notes()),
        )

    def _forget(self, modes: list[Any]) -> None:
        """Let go of the copies.

        Raises:
            FitRefused: Something else holds tensors of theirs.
            FitTimedOut: There is no time left to look for that.
        """
        self._labels, self._given = [], []
        where = left_behind(modes, self._check)
        if where:
            raise FitRefused(f"the step has left tensors without data in {where}")

    def _peak_of(self, shape: FitShape, modes: list[Any]) -> FitPeak:
        """Run a step of one shape on a copy of its own."""
        seen, mode = self._seen, fake_mode()
        modes.append(mode)
        copies = FakeCopy(mode)
        model = copies.module(self._root)
        alive = [o for o in (reference() for reference in seen.optimizers) if o is not None]
        devices: set[str] = set()
        optimizers = [copies.optimizer(optimizer, devices) for optimizer in alive]
        pairs = zip(alive, optimizers, strict=True)
        inside = [copied for optimizer, copied in pairs if seen.in_pass.has(optimizer)]
        if self._blocks is not None and shape.layers != self._blocks.number:
            count = shape.layers or 1
            resize_layers(model, optimizers, self._blocks, count, copies, check=self._check)
        self._hooks, self._labels = copies.hooks, []
        self._notes = self._device_notes(devices)
        arguments = self._arguments(shape, copies, mode)
        self._given = things_in(arguments, self._torch.Tensor)
        step = Step(
            model=model,
            optimizers=optimizers,
            in_pass=InPass(inside, seen.in_pass.lets_go),
            arguments=arguments,
            loss=self._make_loss,
            kept_in_forward=seen.kept_in_forward,
            kept_in_backward=seen.kept_in_backward,
            keeps_result=seen.keeps_result,
            contexts=[self._torch.autocast(d, dtype=t) for d, t in seen.autocasts],
            kept=self._kept(shape),
        )
        self._around = around = self._around or Surroundings(copies.code(), self._check)
        try:
            return _record(run_step(step, mode, self._device, self._check), shape)
        finally:
            around.put_back()

    def _kept(self, shape: FitShape) -> dict[str, int]:
        """By phase, what variables keep up to it: that of the last step grows with the batch."""
        batch, seq = self._sizes
        ratio = shape.batch * (shape.seq or 1) / (batch * (seq or 1))
        kept: dict[str, int] = {}
        for one in self._seen.kept:
            size = round(one.bytes * (1.0 if one.lasts else ratio))
            kept[one.until] = kept.get(one.until, 0) + size
        return kept

    def _make_loss(self, result: object) -> Any:
        """The loss of what the copy has returned, made as the training's was."""
        torch, plan = self._torch, self._seen.loss
        results = [
            t for t in things_in(plain_result(result), torch.Tensor) if t.grad_fn is not None
        ]
        if plan is None or not results:
            raise FitRefused("what the model returns holds no tensor with a gradient")
        return plan.make(results, torch, self._labels, self._given)

    def _arguments(self, shape: FitShape, copies: FakeCopy, mode: Any) -> Any:
        """What the model is called with, in other sizes and without data."""
        torch, (batch, seq) = self._torch, self._sizes

        def build(value: Any) -> Any:
            if isinstance(value, Given):
                size = _scaled(value, batch, seq, shape)
                with mode:
                    fake = torch.empty(size, dtype=value.dtype, device=value.device)
                return fake.requires_grad_(value.requires_grad)
            if type(value) in {list, tuple}:
                return type(value)(build(part) for part in value)
            if isinstance(value, tuple):
                return type(value)(*(build(part) for part in value))
            if isinstance(value, dict):
                return {key: build(part) for key, part in value.items()}
            return copies.any(value)

        return build(self._seen.arguments)

    def _device_notes(self, devices: set[str]) -> list[str]:
        """A sentence about devices that are not looked at."""
        others = sorted(devices - {self._device})
        return [f"only {self._device} is predicted; {', '.join(others)} is not"] if others else []

    def _all_notes(self) -> list[str]:
        """What the reader should know."""
        seen, notes = self._seen, list(self._notes)
        plan = seen.loss
        if plan is not None and (plan.unknown or plan.branches):
            what = plan.unknown or "its branches"
            notes.append(f"the memory of the loss is not predicted beyond {what}")
        if not seen.optimizers:
            notes.append("no optimizer of torch steps: what the update takes is not predicted")
        if self._hooks:
            notes.append(f"{self._hooks} hooks of the program are left out")
        if seen.others:
            names = ", ".join(sorted(seen.others))
            notes.append(f"other models are trained in the same step and left out: {names}")
        return notes


def _scaled(given: Given, batch: int, seq: int | None, shape: FitShape) -> tuple[int, ...]:
    """The sizes of an argument in a step of another shape.

    The first dimension is the batch, where it is as long as that of the others. The length is any
    later dimension of that length in a tensor of integers or of truth values, or in a mask with
    four dimensions; in any other tensor it is the second one.
    """
    sizes = list(given.shape)
    if sizes and sizes[0] == batch:
        sizes[0] = shape.batch
    if seq is not None and shape.seq is not None:
        is_number = given.dtype.is_floating_point and len(sizes) != 4
        for place in range(1, 2 if is_number else len(sizes)):
            if place < len(sizes) and sizes[place] == seq:
                sizes[place] = shape.seq
    return tuple(sizes)


def _record(peak: Peak, shape: FitShape) -> FitPeak:
    """A peak as it travels, the largest part first."""
    parts = sorted(peak.parts.items(), key=lambda part: -part[1])
    return FitPeak(
        shape=shape,
        bytes=peak.bytes,
        phase=peak.phase,
        parts=tuple([FitPart(category=name, bytes=size) for name, size in parts if size]),
    )
