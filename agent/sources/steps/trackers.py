"""Has what the script logs to a tracker on record as well, in python.metrics.

Rules of this file: runs in whichever thread logs, around the trackers' own functions, which do as
they always did. Imports no tracker: one that is not loaded yet is looked for before each step of an
optimizer. Scalars only; what else is logged is passed by.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....safety.guard import Guard, pass_on
from ....script import marks
from ....settings.values import TRACKERS
from ..shared.recording import Recording
from ..stand_in import PlainSource, StandIn
from ..torch_types import Optimizer

Logged = Callable[[tuple[Any, ...], dict[str, Any]], Mapping[str, Any]]


class _Wire(NamedTuple):
    """A function of a tracker.

    Attributes:
        logged: The scalars of a call, by their names.
    """

    module: str
    owner: str
    name: str
    logged: Logged


def _of_call(args: tuple[Any, ...], kwargs: dict[str, Any], *names: str) -> Iterator[Any]:
    """Arguments of a method's call behind `self`, by position or name."""
    for at, name in enumerate(names, 1):
        yield args[at] if len(args) > at else kwargs.get(name)


def _one(*names: str) -> Logged:
    """Of a function that is given a name and its value."""

    def logged(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        *_, name, value = _of_call(args, kwargs, *names)
        return {str(name): value}

    return logged


def _of_mapping(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
    """Of wandb's: names and values, some of them in mappings of their own."""
    (data,) = _of_call(args, kwargs, "data")
    return dict(_flat(data)) if isinstance(data, Mapping) else {}


def _flat(data: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _of_series(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
    """Of tensorboard's for several curves in one plot."""
    tag, values = _of_call(args, kwargs, "main_tag", "tag_scalar_dict")
    return {f"{tag}/{name}": value for name, value in dict(values or {}).items()}


def _of_batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
    """Of mlflow's for several at once."""
    _, metrics = _of_call(args, kwargs, "run_id", "metrics")
    return {one.key: one.value for one in metrics or ()}


_SCALAR, _METRIC = _one("tag", "scalar_value"), _one("run_id", "key", "value")
_WIRES: Mapping[str, Sequence[_Wire]] = {
    "tensorboard": (
        _Wire("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalar", _SCALAR),
        _Wire("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalars", _of_series),
    ),
    # What `wandb.log` becomes is bound as a run begins, and ends here.
    "wandb": (_Wire("wandb.sdk.wandb_run", "Run", "_log", _of_mapping),),
    "mlflow": (
        _Wire("mlflow.tracking.client", "MlflowClient", "log_metric", _METRIC),
        _Wire("mlflow.tracking.client", "MlflowClient", "log_batch", _of_batch),
    ),
}
assert set(_WIRES) == set(TRACKERS)


class Trackers(PlainSource):
    """Stands in for the functions by which some trackers are logged to."""

    def __init__(self, recording: Recording, wanted: str) -> None:
        """Find none yet.

        Args:
            wanted: The names of trackers, separated by commas.
        """
        self._recording = recording
        self._left = [wire for name in wanted.split(",") for wire in _WIRES.get(name, ())]
        self._methods: list[StandIn] = []
        self.is_on = False
        self.guard = Guard("trackers", self.stop)

    def start(self) -> None:
        """Record from now on."""
        self.is_on = True
        self._find()
        if self._left:
            self._recording.events.before_step += (self._step_begins,)

    def stop(self) -> None:
        """Record no more."""
        self.is_on = False
        super().stop()
        self._recording.events.forget(self._step_begins)

    def _step_begins(
        self, _optimizer: Optimizer, _args: tuple[object, ...], _kwargs: dict[str, object]
    ) -> None:
        """An optimizer is about to step: see whether a tracker has been loaded."""
        if any(wire.module in sys.modules for wire in self._left):
            self.guard.run(self._find)
            if not self._left:
                self._recording.events.forget(self._step_begins)

    def _find(self) -> None:
        """Stand in for all that is loaded."""
        for wire in tuple(self._left):
            owner = getattr(sys.modules.get(wire.module), wire.owner, None)
            if owner is not None:
                self._left.remove(wire)
                self._methods.append(StandIn(owner, wire.name, self._around(wire.logged)))
        for stand_in in self._methods:
            stand_in.start()

    def _around(self, logged: Logged) -> Callable[..., Any]:
        """What is done around a call."""

        def around(original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
            result = original(*args, **kwargs)
            self.guard.run(self._note, logged, args, kwargs)
            return result

        return around

    def _note(self, logged: Logged, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the scalars of a call."""
        scalars = {name: value for name, value in logged(args, kwargs).items() if _is_scalar(value)}
        if scalars and marks.recorder is not None:
            marks.recorder.measured(scalars)


def _is_scalar(value: Any) -> bool:
    """Whether it is a number, of Python, numpy or torch."""
    if isinstance(value, (int, float)):
        return True
    try:
        numel = getattr(value, "numel", None)
        if callable(numel):
            return bool(numel() == 1)
        return getattr(value, "shape", None) == () and hasattr(value, "item")
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        pass_on()
        return False  # of a class of the script's own, which may raise when it is asked
