"""What two runs were set up with, and in what of it they differ.

Rules of this file: pure. What only one run tells is a difference only where the other would have
told it: an argument, an environment variable. A loader that one run has not come to is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ...messages.frozen import dataclass
from .reach import Reach, reach_of
from .record import Name, Row, Run, column, together

KINDS = (
    *("argument", "code", "configuration", "step", "torch", "environment", "version", "seed"),
    "place",
)
"""What is told first: what was typed, then what came of it, then where it runs."""
_TOLD_WHOLE = frozenset({"argument", "environment"})
"""Kinds of which a run tells all that there is."""
_NO_MATTER = frozenset(
    {
        *(("place", name) for name in ("code root", "compiled_frames", "TORCHELASTIC_RUN_ID")),
        ("environment", "TORCHELASTIC_RUN_ID"),
        ("torch", "git_version"),  # its version tells it
    }
)
_SCRIPT = ("code", "script")
_LEAST_RATIO = 1.02
_RATE = 1e-6
_NOT_GIVEN = "not given"
_FROM = {
    "batches": "batch_size",
    "prefetch_factor": "num_workers",
    "persistent_workers": "num_workers",
}
"""Of a loader, what follows from what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that was not the same.

    Attributes:
        kind: One of `KINDS`.
        before: What it was in the first run, as text; None where it was not set.
        after: The same of the second.
        reach: What it can change.
        since_step: The first step in which it is not the same, where steps tell it.
        is_secret: Whether the values must not be shown.
    """

    kind: str
    name: str
    before: str | None
    after: str | None
    reach: Reach
    since_step: int | None = None
    is_secret: bool = False

    @property
    def is_script(self) -> bool:
        """Whether it is that the runs are of two scripts, each of which may do anything else."""
        return (self.kind, self.name) == _SCRIPT

    @property
    def label(self) -> str:
        """Its kind and its name, as ``argument --lr`` or ``argument 1``."""
        return self.name if self.name.startswith(f"{self.kind} ") else f"{self.kind} {self.name}"

    @property
    def words(self) -> str:
        """It in words: ``num_workers of loader 0 is 0, and was 4``."""
        owner, dot, name = self.name.rpartition(".")
        shown = f"{name} of {owner}" if dot and self.kind == "configuration" else self.name
        if self.is_script:
            return f"the script is {self.after}, and was {self.before}"
        if self.kind == "code" and self.name not in {"git commit", "git branch"}:
            return f"{self.name} has changed"
        if self.is_secret:
            return f"{shown} is another one"
        before, after = (value or _NOT_GIVEN for value in (self.before, self.after))
        nouns = {"version": "version of ", "torch": "torch's "}
        shown = self.label if self.kind == "argument" else f"{nouns.get(self.kind, '')}{shown}"
        return f"{shown} is {after}, and was {before}"


def differences(before: Run, after: Run, secrets: frozenset[Name]) -> tuple[Difference, ...]:
    """All that was not the same, by kind, and what can change most of each kind first."""
    found = [*_of_script(before, after)]
    found += _of_environment(before.environment, after.environment, secrets)
    found += _of_steps(before, after)
    found = [one for one in found if not _follows(one, found)]
    found.sort(key=lambda one: (KINDS.index(one.kind), -one.reach.strength))
    return tuple(found)


def _of_script(before: Run, after: Run) -> Iterator[Difference]:
    """That it is not the same script."""
    old, new = (run.command.partition(" ")[0] for run in (before, after))
    if old and new and old != new:
        kind, name = _SCRIPT
        yield Difference(kind=kind, name=name, before=old, after=new, reach=reach_of(kind, name))


def _of_environment(
    before: Mapping[Name, str | None], after: Mapping[Name, str | None], secrets: frozenset[Name]
) -> Iterator[Difference]:
    if not before or not after:
        return
    same_code = all(
        value == after.get(name, value) and value is not None
        for name, value in before.items()
        if name[0] == "code" and name[1].endswith(".py")
    )
    for kind, name in dict.fromkeys((*before, *after)):
        key = (kind, name)
        if key in _NO_MATTER or kind not in KINDS:
            continue
        if kind not in _TOLD_WHOLE and (key not in before or key not in after):
            continue
        values = before.get(key), after.get(key)
        if values[0] == values[1] or (kind == "code" and None in values):
            continue
        is_secret = key in secrets
        yield Difference(
            kind=kind,
            name=name,
            before=None if is_secret else values[0],
            after=None if is_secret else values[1],
            reach=reach_of(kind, name, same_code=same_code),
            is_secret=is_secret,
        )


def _of_steps(before: Run, after: Run) -> Iterator[Difference]:
    """What the steps themselves tell: the size of a batch, the learning rate."""
    first, second, are_same = together(before, after)
    if not first or not second:
        return
    for name in ("samples", "tokens", "micro_batches"):
        old, new = (_median(rows, name) for rows in (first, second))
        if old is not None and new is not None and max(old, new) > _LEAST_RATIO * min(old, new):
            shown = f"{name.replace('_', '-')} in a step"
            yield Difference(
                kind="step",
                name=shown,
                before=f"{old:g}",
                after=f"{new:g}",
                reach=reach_of("step", name),
            )
    step = _first_other_rate(first, second) if are_same else None
    if step is not None:
        old, new = (_rate_at(rows, step) for rows in (first, second))
        yield Difference(
            kind="step",
            name="learning rate",
            before=f"{old:g}",
            after=f"{new:g}",
            reach=reach_of("step", "lr"),
            since_step=step,
        )


def _median(rows: tuple[Row, ...], name: str) -> float | None:
    values = column([row for row in rows if row[name] is not None], name)
    return float(np.median(values)) if len(values) else None


def _first_other_rate(first: tuple[Row, ...], second: tuple[Row, ...]) -> int | None:
    """The first step in which the learning rates are not the same."""
    for one, two in zip(first, second, strict=True):
        old, new = one["lr"], two["lr"]
        if old is not None and new is not None and abs(new - old) > _RATE * max(abs(old), abs(new)):
            return int(one["step"])
    return None


def _rate_at(rows: tuple[Row, ...], step: int) -> float:
    return float(next(row["lr"] for row in rows if row["step"] == step))


def _follows(one: Difference, others: list[Difference]) -> bool:
    """Whether it says once more what another one says: batches of an epoch, the size of one."""
    names = {other.name for other in others if other.kind == "configuration"}
    if one.kind == "step" and one.name == "samples in a step":
        return any(name.endswith(".batch_size") for name in names)
    if one.kind == "step" and one.name == "learning rate":
        return any(name.endswith(".lr") for name in names)
    owner, _, name = one.name.rpartition(".")
    return one.kind == "configuration" and f"{owner}.{_FROM.get(name)}" in names
