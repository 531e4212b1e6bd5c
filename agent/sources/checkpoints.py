"""Records each checkpoint that the script writes: where, at which step, and whether it is sound.

Rules of this file: runs in whichever thread saves, around torch's own functions, which do as they
always did. Looks at names and storages of what is saved, and once at the weights; what a device
says of them comes while the file is written, or not at all: nothing here waits for it. The row is
open while the file is written, so that one that was cut short is known as that.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...ring.format import DONE, FAILED, NULL_INT, NULL_NAME
from ...ring.writer import RingWriter
from ...safety.guard import Guard
from .accelerator import Accelerator
from .shared.recording import Recording
from .stand_in import PlainSource, StandIn
from .torch_types import Optimizer

if TYPE_CHECKING:
    from .numbers.nonfinite.bad_weights import WeightsLook

_WIRES = (
    ("torch", "save", "_saved"),
    ("torch.distributed.checkpoint", "save", "_saved_by_all"),
    ("torch.distributed.checkpoint", "async_save", "_saved_by_all"),
)
"""Module, function, and what stands in for it; the second kind is loaded only by who uses it."""
_PART = ".distcp"
"""How the files end that torch.distributed.checkpoint writes by `torch.save`."""
_DEEPEST, _MOST_KEYS = 3, 20_000
_MOST_PATHS, _MOST_OTHERS = 20_000, 1000
"""How many paths are kept apart of what has a model or an optimizer, and of other files, such as
one per sample; of those beyond only the folder is kept, if there are not too many of these."""
_OURS = re.compile(r"^\.(?P<name>.+)\.\d+-\d+\.unfinished$")
"""What `act checkpoint` calls a file until it is whole."""
_LIBRARIES = (
    "torch.",
    "probing.",
    "lightning.",
    "pytorch_lightning.",
    "accelerate.",
    "transformers.",
)


def source(recording: Recording, ring: RingWriter, accelerator: Accelerator) -> Checkpoints:
    """What writes the table."""
    return Checkpoints(recording, ring, accelerator)


class Checkpoints(PlainSource):
    """Stands in for what saves."""

    def __init__(self, recording: Recording, ring: RingWriter, accelerator: Accelerator) -> None:
        self._recording, self._ring, self._accelerator = recording, ring, accelerator
        self._methods: list[StandIn] = []
        self._left = [_MOST_OTHERS, _MOST_PATHS, _MOST_OTHERS]  # without a model, with one, folders
        self.is_on = False
        self.guard = Guard("checkpoints", self.stop)

    def start(self) -> None:
        """Record from now on; what is not loaded yet is looked for before each optimizer's step."""
        self.is_on = True
        self._find()
        if len(self._methods) < len(_WIRES):
            self._recording.events.before_step += (self._step_begins,)

    def stop(self) -> None:
        """Record no more."""
        self.is_on = False
        super().stop()
        self._look_no_more()

    def _step_begins(
        self, _optimizer: Optimizer, _args: tuple[object, ...], _kwargs: dict[str, object]
    ) -> None:
        """An optimizer is about to step: see whether more has been loaded."""
        if _WIRES[-1][0] in sys.modules:
            self.guard.run(self._find)
            self._look_no_more()

    def _look_no_more(self) -> None:
        self._recording.events.forget(self._step_begins)

    def _find(self) -> None:
        """Stand in for all that is loaded."""
        known = {(wire.owner.__name__, wire.name) for wire in self._methods}
        for module, name, around in _WIRES:
            owner = sys.modules.get(module)
            if owner is not None and (module, name) not in known and hasattr(owner, name):
                self._methods.append(StandIn(owner, name, getattr(self, around)))
        for wire in self._methods:
            wire.start()

    def _saved(self, original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
        """Stands in for `torch.save`."""
        state = args[0] if args else kwargs.get("obj")
        target = args[1] if len(args) > 1 else kwargs.get("f")
        return self._around(original, args, kwargs, 0, state, target)

    def _saved_by_all(
        self, original: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Any:
        """Stands in for what saves the parts of all ranks."""
        state = args[0] if args else kwargs.get("state_dict")
        target = kwargs.get("checkpoint_id") or getattr(kwargs.get("storage_writer"), "path", None)
        return self._around(original, args, kwargs, 1, state, target)

    def _around(  # noqa: PLR0917 - the call and what is known of it
        self,
        original: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        how: int,
        state: object,
        target: object,
    ) -> Any:
        """Save, between the two halves of a row."""
        begun = path = None
        clock = self._recording.costs.clock
        try:
            start = clock()
            path = path_of(target)
            begun = self._begin(how, state, path)
            self._recording.costs.add("checkpoints", clock() - start)
        except Exception:  # noqa: BLE001 - never harm the host
            self.guard.fault()
        start = time.perf_counter_ns()
        try:
            result = original(*args, **kwargs)
        except BaseException:
            self.guard.run(self._end, begun, start, path, FAILED)
            raise
        self.guard.run(self._end, begun, start, path, DONE)
        return result

    def _begin(
        self, how: int, state: object, path: str | None
    ) -> tuple[int, WeightsLook | None] | None:
        """Open the row, as what is saved is known before it is; none for what is no checkpoint."""
        from .numbers.nonfinite.bad_weights import look_at_weights

        recording = self._recording
        names, roots = recording.names, recording.objects.roots.alive()
        weights = {name for root in roots for name, _ in root.named_parameters()}
        keys = {key.removeprefix("module.") for key in _keys_of(state)}
        has_model, has_optimizer = bool(weights & keys), {"param_groups", "state"} <= keys
        is_part = path is not None and path.endswith(_PART)
        if is_part or (path is None and not (has_model or has_optimizer)):
            return None
        look = look_at_weights(recording, roots, self._accelerator) if has_model else None
        word = self._ring.open_row(
            time.perf_counter_ns(),
            max(0, recording.step - 1),
            NULL_NAME if path is None else self._number_of(path, int(has_model or has_optimizer)),
            names.intern(_caller()),
            recording.threads.state.native_id,
            how,
            int(has_model),
            int(has_optimizer),
        )
        return word, look

    def _number_of(self, path: str, kind: int) -> int:
        """The number of a path, of its folder, or NULL, as long as there are not too many."""
        names = self._recording.names
        for text, at in ((path, kind), (os.path.join(os.path.dirname(path), ""), 2)):
            is_new = not names.has(text)
            if not is_new or self._left[at] > 0:  # several threads may save at once
                self._left[at] -= is_new
                return names.intern(text)
        return NULL_NAME

    def _end(
        self,
        begun: tuple[int, WeightsLook | None] | None,
        start_ns: int,
        path: str | None,
        state: int,
    ) -> None:
        """Close it."""
        if begun is None:
            return
        costs, took = self._recording.costs, time.perf_counter_ns() - start_ns
        clock, (word, look) = costs.clock, begun
        start = clock()
        are_finite = None if look is None else look.answer()
        size = NULL_INT
        if path is not None and os.path.isfile(path):
            size = os.stat(path).st_size
        values: dict[str, Any] = {"bytes": size, "duration_ns": took}
        if are_finite is not None:
            values["weights_finite"] = int(are_finite)
        self._ring.close_named(word, state, values)
        costs.add("checkpoints", clock() - start)


def path_of(target: object) -> str | None:
    """The whole path of what is written to; None of what is no file."""
    name = target if isinstance(target, (str, os.PathLike)) else getattr(target, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        return None
    folder, base = os.path.split(os.path.abspath(os.fspath(name)))
    ours = _OURS.match(str(base))
    return os.path.join(str(folder), ours["name"] if ours else str(base))


def _keys_of(state: object) -> Iterator[str]:
    if isinstance(state, sys.modules["torch"].nn.Module):  # saved as it is
        state = dict(state.named_parameters())
    waiting, left = [(state, 0)], _MOST_KEYS
    while waiting and left:
        value, depth = waiting.pop()
        if not isinstance(value, dict):
            continue
        for key, part in list(value.items()):
            left -= 1
            if isinstance(key, str):
                yield key
            if left <= 0:
                return
            if depth < _DEEPEST:
                waiting.append((part, depth + 1))


def _caller() -> str:
    """The line of the program that saves."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = f"{frame.f_globals.get('__name__', '')}."
        if not module.startswith(_LIBRARIES):
            break
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
