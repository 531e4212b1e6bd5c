"""Reads tokens and labels out of what the training reads next.

Rules of this file: `_Look` runs in the training thread, on request, between two of its steps: it
copies a bounded part of two tensors to the processor's memory (which waits for the device where
they are not there already) and is done. All the rest works on these copies, in a thread of the
agent's own. No tensor of the training is kept.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from types import FrameType
from typing import Any, Protocol

from ....errors import NoBatch, NoLabels
from ....messages.about.labels import LabelsAnswer, LabelsRequest
from ....safety.guard import Guard
from ...agent_threads import in_thread
from ...recording.safe_points import SafePoints
from ..accelerator import is_capturing
from ..torch_types import Tensor
from .batches import tensors_of
from .label_facts import Pair, answer_about

DEFAULT_LIMIT_S = 30.0
_MOST_ELEMENTS = 1 << 20
_CALLER = "/agent/sources/calls/modules.py"
_NEAR = 8
"""How many frames above the module wrapper's may be."""
_ROUNDS = 3
"""How often one place may be seen without labels before there are taken to be none."""
_INPUTS = ("input_ids", "inputs", "input", "tokens", "token_ids", "ids", "idx", "x", "src", "text")
_LABELS = ("labels", "label", "targets", "target", "lm_labels", "tgt", "y")
_TYPES = frozenset({"torch.int16", "torch.int32", "torch.int64", "torch.uint8"})


class Training(Protocol):
    """What must be known about the training."""

    safe_points: SafePoints

    def step(self) -> int | None:
        """The step in progress; None while none is counted."""


class LabelReading:
    """One request: waits for tokens and labels, and looks at them."""

    def __init__(self, request: LabelsRequest, training: Training) -> None:
        self._request = request
        self._training = training
        self._look = _Look(training)

    def begin(self) -> Future[LabelsAnswer]:
        """Start in a thread of its own; the future gets the answer, or the error."""
        return in_thread("labels", self._work)

    def end(self) -> None:
        """Stop waiting."""
        self._look.came.set()

    def _work(self) -> LabelsAnswer:
        """The body of the thread."""
        if "torch" not in sys.modules:
            raise NoLabels("the process has not imported torch")
        points, look, started = self._training.safe_points, self._look, time.monotonic()
        limit_s = self._request.timeout_s or DEFAULT_LIMIT_S
        points.begin_look(look)
        try:
            look.came.wait(limit_s)
            points.end_look(look)
            waited_s = time.monotonic() - started
            pair = look.found(limit_s)
            return answer_about(pair, shown=self._request.samples, waited_s=waited_s)
        finally:
            points.end_look(look)


class _Look:
    """Sees batches and calls of root modules until there are tokens with labels.

    Attributes:
        came: Set once there are, or it is known that there are none.
        pair: What was found.
    """

    def __init__(self, training: Training) -> None:
        self._torch: Any = sys.modules.get("torch")
        self._training = training
        self.came = threading.Event()
        self._guard = Guard("labels", self.came.set)
        self.pair: Pair | None = None
        self._seen: dict[str, str] = {}
        self._times: dict[str, int] = {}

    def batch_came(self, batch: object) -> None:
        """See `safe_points.Look`."""
        if not self.came.is_set():
            self._guard.run(self._read, "the batch", batch)

    def root_called(self) -> None:
        """See `safe_points.Look`."""
        frame: FrameType | None = sys._getframe(1)
        for _ in range(_NEAR):
            if frame is None:
                return
            if frame.f_code.co_filename.endswith(_CALLER) and frame.f_code.co_name == "call":
                if not self.came.is_set():
                    self._guard.run(self._read_call, frame)
                return
            frame = frame.f_back

    def found(self, limit_s: float) -> Pair:
        """The copies, if there are any by now.

        Raises:
            NoLabels: There are none in what the training reads.
            NoBatch: The training has read nothing.
        """
        if self.pair is not None:
            return self.pair
        seen = [f"{where} has {what or 'no tensors'}" for where, what in self._seen.items()]
        raise NoLabels("; ".join(seen)) if seen else NoBatch(limit_s)

    def _read_call(self, frame: FrameType) -> None:
        """Look at the arguments of the call in progress, by the names that `forward` gives them."""
        values = frame.f_locals
        module, args, kwargs = values["self"], values["args"], values["kwargs"]
        if type(values) is dict and frame.f_trace is None:
            values.clear()  # before 3.13 a copy, which the frame would keep
        code = getattr(getattr(type(module), "forward", None), "__code__", None)
        names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
        named = dict(zip(names, args, strict=False)) if len(names) >= len(args) else {}
        arguments = {**(named or {str(i): value for i, value in enumerate(args)}), **kwargs}
        self._read(f"the call of {type(module).__name__}", arguments)

    def _read(self, where: str, values: object) -> None:
        """Look for tokens and labels in one place; what a graph is captured of comes again."""
        if is_capturing():
            return
        tensors = tensors_of(values, self._torch.Tensor)
        found = _find_pair([(n, t) for n, t in tensors if _is_tokens(t)])
        if found is not None:
            self.pair = self._copy(where, *found)
            self.came.set()
            return
        self._seen[where] = ", ".join(
            f"{name or 'tensor'} {_kind(tensor)}" for name, tensor in tensors[:8]
        )
        self._times[where] = self._times.get(where, 0) + 1
        if self._times[where] == _ROUNDS:  # all that comes in a step has come more than once
            self.came.set()

    def _copy(self, where: str, inputs: tuple[str, Any], labels: tuple[str, Any]) -> Pair:
        """Copy as many samples as may be."""
        shape = tuple(labels[1].shape)
        widest = max(1, shape[1], inputs[1].shape[1])
        rows = max(1, min(shape[0], _MOST_ELEMENTS // widest))
        with self._torch.no_grad():
            copies = [t[:rows].to("cpu", copy=True) for t in (inputs[1], labels[1])]
        return Pair(
            origin=where,
            inputs_name=f"{inputs[0]}: {_kind(inputs[1])}".removeprefix(": "),
            inputs=copies[0],
            inputs_shape=tuple(inputs[1].shape),
            labels_name=f"{labels[0]}: {_kind(labels[1])}".removeprefix(": "),
            labels=copies[1],
            labels_shape=shape,
            samples=shape[0],
            step=self._training.step(),
        )


def _is_tokens(tensor: Tensor) -> bool:
    """Whether a tensor can be tokens or labels, one row per sample."""
    is_dense = str(tensor.layout) == "torch.strided" and not tensor.is_nested
    return is_dense and str(tensor.dtype) in _TYPES and tensor.dim() == 2 and tensor.numel() > 0


def _kind(tensor: Tensor) -> str:
    sizes = "?" if tensor.is_nested else ",".join(str(size) for size in tensor.shape)
    return f"{str(tensor.dtype).removeprefix('torch.')}[{sizes}]"


def _find_pair(
    tensors: list[tuple[str, Tensor]],
) -> tuple[tuple[str, Any], tuple[str, Any]] | None:
    """The tokens and their labels: by name, else by order where there are no names."""
    labels = _named(tensors, _LABELS)
    if labels is not None:
        rest = [t for t in tensors if t[0] != labels[0] and len(t[1]) == len(labels[1])]
        inputs = _named(rest, _INPUTS) or next(iter(rest), None)
        return (inputs, labels) if inputs is not None else None
    unnamed = [t for t in tensors if not t[0] or t[0].isdigit()]
    if len(unnamed) < 2:
        return None
    first = unnamed[0]
    # A mask stands between them as often as not.
    others = [t for t in unnamed[1:] if t[1].shape == first[1].shape and not _is_mask(t[1])]
    return (first, others[0]) if others else None


def _named(tensors: Iterable[tuple[str, Tensor]], names: tuple[str, ...]) -> tuple[str, Any] | None:
    """The tensor with the first of these names that there is."""
    by_name = {name.rpartition(".")[2].lower(): (name, tensor) for name, tensor in tensors}
    return next((by_name[name] for name in names if name in by_name), None)


def _is_mask(tensor: Tensor) -> bool:
    return int(tensor.min()) >= 0 and int(tensor.max()) <= 1
