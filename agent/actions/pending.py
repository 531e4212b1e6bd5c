"""An action from when it is asked for, and what may still become of it.

Rules of this file: state only; `acting` changes it.
"""

from __future__ import annotations

import shlex
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ...errors import ActRefused
from ...messages.about.act import Act, Asked, Prepared, Undo
from ...messages.frozen import dataclass
from ...messages.rank_paths import of_ranks
from ..agent_threads import pending
from ..audit.request_log import Sender
from .record import Outcome

if TYPE_CHECKING:
    from ..sources.actions.ledger import Hanging, Undone
    from ..sources.actions.moments.rendezvous import Rendezvous


@dataclass(slots=True, kw_only=True)
class PendingAction:
    """An action from when it is asked for.

    Attributes:
        ranks: How many ranks apply it together; None for this one by itself.
        prepared: Done when it could be applied, or never can.
        rendezvous: Where they do, once it is prepared.
        undo: Takes it back; None where that has no meaning, or has been done.
        kind: What it is the one of.
        hooks: What hangs on the training by it.
        optimizers: Those that it is on; None where it is not a matter of them.
        replaced: The actions of its kind before it, which it stands over, if only in part.
        replaced_by: Those that stand over it, while they do.
        taken_back: The one that it undoes.
        is_leaving: Whether the agent ends it, as it leaves.
        is_applied: Whether the training thread has done its part.
    """

    number: int
    name: str
    arguments: str
    sender: Sender
    asked: Asked
    limit_s: float
    ranks: int | None = None
    prepared: Future[Prepared] = field(default_factory=pending)
    rendezvous: Rendezvous | None = None
    word: int = 0
    since: float = field(default_factory=time.monotonic)
    future: Future[Act] = field(default_factory=pending)
    is_cancelled: bool = False
    is_leaving: bool = False
    is_applied: bool = False
    outcome: Outcome | None = None
    undo: Callable[[], Undone] | None = None
    kind: str | None = None
    hooks: Hanging | None = None
    optimizers: weakref.WeakSet[Any] | None = None
    replaced: list[PendingAction] = field(default_factory=list)
    replaced_by: list[PendingAction] = field(default_factory=list)
    taken_back: PendingAction | None = None

    def to_message(self) -> Act:
        """As a client sees it."""
        outcome = self.outcome
        return Act(
            number=self.number,
            name=self.name,
            arguments=self.arguments,
            who=str(self.sender),
            state=outcome.state if outcome is not None else None,
            step=outcome.step if outcome is not None else None,
            changes=outcome.changes if outcome is not None else (),
            notes=outcome.notes if outcome is not None else (),
            waited_s=outcome.waited_s if outcome is not None else None,
            pause_s=outcome.pause_s if outcome is not None else None,
            age_s=time.monotonic() - self.since,
            undo=self.can_be_undone,
        )

    @property
    def can_be_undone(self) -> bool:
        """Whether it can be now."""
        return self.undo is not None and not self.replaced_by

    @property
    def is_in_force(self) -> bool:
        """Whether anything hangs on the training by it."""
        return self.hooks is not None and self.hooks.hangs

    def is_alike(self, other: PendingAction) -> bool:
        """Whether another one stands over it: of its kind, and on one of its optimizers."""
        if self.undo is None or self.kind != other.kind:
            return False
        mine, theirs = self.optimizers, other.optimizers
        return not mine or not theirs or any(optimizer in theirs for optimizer in mine)

    def refuse_unwanted(self) -> None:
        """Make sure that somebody still waits for it.

        Raises:
            ActRefused: Nobody wants it any more.
        """
        if self.is_cancelled:
            why = "the agent was detached meanwhile" if self.is_leaving else "who asked has gone"
            raise ActRefused(why)


def still_kept(actions: list[PendingAction], most: int) -> list[PendingAction]:
    """The last actions, and of those before them what is in hand or in force, or can be undone.

    Args:
        actions: All that are kept, the oldest first.
        most: How many of the last, and how many of those that can be undone.
    """
    undoable = [kept for kept in actions if kept.undo is not None]
    last = {kept.number for kept in (*actions[-most:], *undoable[-most:])}
    stay: list[PendingAction] = []
    gone: list[PendingAction] = []
    for kept in actions:
        stays = kept.number in last or kept.outcome is None or kept.is_in_force
        (stay if stays else gone).append(kept)
    for kept in gone:
        for below in kept.replaced:
            below.replaced_by.remove(kept)  # which nobody could undo first any more
        kept.replaced = []  # which would keep those before it
    return stay


def refuse_undoing_alone(
    kept: PendingAction, undone: PendingAction, asked: Undo, job: str | None
) -> None:
    """Make sure that what all ranks have done together is taken back together.

    Raises:
        ActRefused: Fewer ranks are asked.
    """
    if undone.ranks is not None and undone.ranks != kept.ranks and not asked.alone:
        raise ActRefused(
            f"action {undone.number} has been applied on {undone.ranks} ranks together",
            help="Nothing was changed. Undo it on all of them:"
            f" `probing -t {shlex.quote(of_ranks(job))} act undo`; --alone undoes it on this one.",
        )


def why_not(kept: PendingAction) -> str:
    """Why an action cannot be undone, to be put behind its number."""
    if kept.replaced_by:
        return f"has been replaced by action {kept.replaced_by[-1].number}; undo that first"
    state = kept.outcome.state if kept.outcome is not None else None
    if state in {"undone", "overwritten"}:
        return f"is {state} already"
    if state in {None, "refused", "timed out", "failed"}:
        return "has changed nothing"
    return f"({kept.name}) has nothing that could be undone"
