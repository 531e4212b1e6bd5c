"""What travels about actions: changes to a running training.

Rules of this file: as in `probing.messages.common`. An action is one record of what is asked for,
and one member of `ActRequest`; its name there, with hyphens, is what the command calls it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import get_args

from ...errors import UsageError
from ..frozen import InNotebooks, dataclass
from ..limits import TimeLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Lr:
    """Another learning rate; one of `value` and `scale`.

    Attributes:
        value: The rate of every parameter group.
        scale: What every rate is multiplied by.
        hold: Set it before each optimizer step, and the script's own after it.
        optimizer: Only of the optimizer of this name or number; None for all.
    """

    value: float | None = None
    scale: float | None = None
    hold: bool = False
    optimizer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """Clip the norm of all gradients before each optimizer step.

    Attributes:
        max_norm: The norm; None ends that.
        optimizer: Only of the optimizer of this name or number; None for all.
    """

    max_norm: float | None = None
    optimizer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Write a checkpoint.

    Attributes:
        path: The file; a relative one is of the process's working directory.
        force: Whether it may take the place of another file.
        copy_first: Copy, let the training go on, then write.
    """

    path: str
    force: bool = False
    copy_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """Collect garbage, empty the caches of the accelerator's allocator."""


GUARD_ACTIONS = ("warn", "skip", "raise", "off")
"""What a guard does about a step whose numbers are not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NanGuard:
    """Look at the loss and the gradients before each optimizer step.

    Attributes:
        do: One of `GUARD_ACTIONS`.
        consecutive: With ``raise``, at which bad step in a row it is raised, those before being
            skipped; else from which on ``status`` advises to go back to a checkpoint.
        optimizer: Only of the optimizer of this name or number; None for all.
    """

    do: str
    consecutive: int | None = None
    optimizer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLayers:
    """Run only the first of a model's repeated blocks.

    Attributes:
        count: How many.
        inside: The container of the blocks; None where the model has one only.
        model: The name of the model; None where there is one only.
    """

    count: int
    inside: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipAttention:
    """Have attention give back its input.

    Attributes:
        keep: Which one still runs: `last`, `first` or `none`.
        inside: Only what is in the module of this name.
        model: The name of the model; None where there is one only.
    """

    keep: str = "last"
    inside: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Do what a plugin has added.

    Attributes:
        name: What the plugin calls it.
        arguments: Its parameters, each as `NAME=VALUE`.
    """

    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Take an action back; None for the last that can be.

    Attributes:
        alone: Also where the action has been applied on all ranks together.
    """

    number: int | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRequest:
    """One action to be applied between two steps of the training.

    Attributes:
        timeout_s: The longest wait for the end of a step.
        ranks: How many ranks of a job apply it at one step.
    """

    timeout_s: TimeLimit | None = None
    ranks: int | None = None
    lr: Lr | None = None
    clip: Clip | None = None
    checkpoint: Checkpoint | None = None
    cleanup: Cleanup | None = None
    nan_guard: NanGuard | None = None
    keep_layers: KeepLayers | None = None
    skip_attention: SkipAttention | None = None
    undo: Undo | None = None
    run: Run | None = None


Asked = Lr | Clip | Checkpoint | Cleanup | NanGuard | KeepLayers | SkipAttention | Undo | Run
"""What can be asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that an action has changed.

    Attributes:
        before: What it was; None where there was nothing.
        after: What it is; None where there is nothing any more.
    """

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Act(InNotebooks):
    """An action, and what came of it.

    Attributes:
        number: Which it is, counted from 1; `python.actions` has it as ``action_id``.
        name: What the command calls it.
        arguments: As text.
        who: Who has sent it.
        state: One of `ACTION_STATES`; None while it is waited for.
        step: The step before which it was applied, if one is counted.
        changes: What it has changed.
        waited_s: The wait for the end of a step.
        pause_s: How long the training was held.
        age_s: How long ago it was asked for.
        undo: Whether it can be undone now.
    """

    number: int
    name: str
    arguments: str
    who: str
    state: str | None
    step: int | None
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    waited_s: float | None
    pause_s: float | None
    age_s: float
    undo: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts(InNotebooks):
    """The last actions of a process, the oldest first."""

    acts: tuple[Act, ...]


MARKS = ("collectives", "steps", "recorded collectives")
"""What ranks can tell by that they are at the same place: the collectives that the job's process
group has begun; where there is no group, the steps that probing has counted; and the collectives
that probing has counted, where it has seen all, and the backend counts otherwise on each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A rank could apply the action, and waits to be told where.

    Attributes:
        number: Its number there.
        mark: One of `MARKS`.
        position: Where the rank is by that.
        step_s: How long its last step took; None while none has ended.
    """

    number: int
    mark: str
    position: int
    step_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Where a rank is to apply what it has prepared, or that it shall not.

    Attributes:
        position: The place is after the first step that ends at this position or beyond; None to
            give it up.
        more: How many steps later.
    """

    number: int
    position: int | None = None
    more: int = 0


def request_for(asked: object, timeout_s: float | None, ranks: int | None = None) -> ActRequest:
    """The request of what is asked for.

    Raises:
        UsageError: It is nothing that can be asked for.
    """
    if not isinstance(asked, Asked):
        names = ", ".join(kind.__name__ for kind in get_args(Asked))
        raise UsageError(
            f"act takes an action, and {asked!r} is none.",
            help=f"The actions of probing.actions: {names}; as in act(Lr(scale=0.1)).",
        )
    for field in dataclasses.fields(asked):
        value = getattr(asked, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{_member_of(asked)} takes a finite number, and {value} is none.")
    kinds: dict[str, Asked] = {_member_of(asked): asked}
    request = ActRequest(timeout_s=timeout_s, ranks=ranks)
    return dataclasses.replace(request, **kinds)  # type: ignore[arg-type]


_OF_REQUEST = ("timeout_s", "ranks")


def asked_of(request: ActRequest) -> list[tuple[str, Asked]]:
    """What a request asks for, with the names of the actions."""
    members = (f.name for f in dataclasses.fields(request) if f.name not in _OF_REQUEST)
    found = [(name.replace("_", "-"), getattr(request, name)) for name in members]
    return [(name, asked) for name, asked in found if asked is not None]


def writes_file(body: bytes) -> bool:
    """Whether an `ActRequest` has a file written where it says.

    Whatever else stands in it: a node server passes on what only a later version understands. What
    is no JSON is refused by whoever reads it.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(asked, dict) and asked.get("checkpoint") is not None


def describe(asked: Asked) -> str:
    """The arguments of an action as text; those that are as always are left out."""
    given = [
        f"{field.name}={getattr(asked, field.name)!r}"
        for field in dataclasses.fields(asked)
        if getattr(asked, field.name) != field.default
    ]
    return ", ".join(given)


def _member_of(asked: Asked) -> str:
    """Which member of `ActRequest` holds it."""
    name = type(asked).__name__
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
