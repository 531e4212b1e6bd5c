"""Takes actions, applies them between two steps of the training, and keeps account of them.

Rules of this file: each action is looked after by a thread of its own, one behind the other, and
applied by the training thread, see `sources.actions`. It is applied whole or not at all: who waits
for it may give it up only before it has begun. One that several ranks apply together is prepared
first, and then waits to be told where, or to be given up. What is in force ends when the agent
leaves.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import wait
from typing import TYPE_CHECKING

from ...errors import (
    ActRefused,
    ActTimedOut,
    BadRequest,
    Busy,
    NoSuchAction,
    NoThread,
    ProbingError,
)
from ...messages.about.act import ActRequest, Acts, Commit, Run, Undo, asked_of, describe
from ..agent_threads import start_thread
from ..audit.audit import ask_hooks
from ..audit.request_log import Sender
from ..recording.no_training import watched
from ..state import Agent
from .pending import PendingAction, refuse_undoing_alone, still_kept, why_not
from .place import wait_applied
from .record import ActionRecord, Outcome

if TYPE_CHECKING:
    from ...ring.writer import RingWriter
    from ...tables import Table
    from ..recording.training import TorchTraining
    from ..sources.actions.catalog import Action
    from ..sources.actions.ledger import Applied
    from ..sources.actions.moments.step_hooks import StepHooks
    from ..sources.actions.targets.scene import Scene
    from ..sources.actions.targets.searches import Searches

DEFAULT_TIMEOUT_S = 30.0
_LONGEST_S = 86_400.0
_END_S = 2.0
_REFUSED_S = 0.5
"""How long one that waits for its place may take to give it up: its thread looks ten times a
second."""
_MOST_IN_HAND = 8
_MOST_KEPT = 100
_RING_ROWS = 1024


class Actions:
    """The actions of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._record = ActionRecord(agent)
        self._kept: list[PendingAction] = []
        self._hooks: list[StepHooks] = []
        self._searches: Searches | None = None
        self._rings: dict[str, RingWriter] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        agent.in_force = self.in_force

    def submit(self, request: ActRequest, sender: Sender) -> PendingAction:
        """Begin with an action.

        Raises:
            BadRequest: It is not exactly one.
            Busy: Too many wait.
        """
        asked = asked_of(request)
        if len(asked) != 1:
            raise BadRequest("a request to act names exactly one action")
        (name, what), limit_s = asked[0], request.timeout_s or DEFAULT_TIMEOUT_S
        with self._lock:
            if sum(kept.outcome is None for kept in self._kept) >= _MOST_IN_HAND:
                raise Busy("actions", _MOST_IN_HAND)
            kept = PendingAction(
                number=self._record.next_number(),
                name=name,
                arguments=describe(what),
                sender=sender,
                asked=what,
                limit_s=min(limit_s, _LONGEST_S),
                ranks=request.ranks,
            )
            self._kept.append(kept)
            self._kept[:] = still_kept(self._kept, _MOST_KEPT)
        try:
            start_thread("act", self._work, kept)
        except NoThread:
            with self._lock:
                self._kept.remove(kept)
            raise
        return kept

    def commit(self, commit: Commit) -> None:
        """Say where a prepared action is applied, or give it up.

        Raises:
            NoSuchAction: It is not one that waits for that.
            ActRefused: The training has come by that place already.
        """
        with self._lock:
            found = (k for k in self._kept if k.number == commit.number and k.outcome is None)
            kept = next(found, None)
        if kept is None or kept.rendezvous is None:
            raise NoSuchAction(f"action {commit.number} does not wait for a place")
        if commit.position is None:
            kept.is_cancelled = True
        elif not kept.rendezvous.agree(commit.position, commit.more):
            raise ActRefused("this rank has come by the agreed step already")

    def told(self) -> Acts:
        """The last actions."""
        with self._lock:
            return Acts(acts=tuple([kept.to_message() for kept in self._kept]))

    def in_force(self) -> list[str]:
        """What hangs on the training now."""
        with self._lock:
            return [f"{k.name} (action {k.number})" for k in self._kept if k.is_in_force]

    def close(self) -> None:
        """End what waits and what is in force, and wait a little for hooks to be taken off."""
        with self._lock:
            for kept in self._kept:
                kept.is_cancelled = kept.is_leaving = True
            waiting = [k.future for k in self._kept if k.outcome is None and not k.is_applied]
        wait(waiting, timeout=_REFUSED_S)  # their rows say then that nothing was changed
        for hooks in list(self._hooks):
            hooks.end()
        if self._hooks and self._agent.training.is_moving():
            self._take_hooks_off()
        self._record.close()
        for ring in self._rings.values():
            ring.close()

    def _take_hooks_off(self) -> None:
        """Have the training thread do it, if it comes to the end of a step soon."""
        from ..sources.actions.moments.step_start import StepStart

        def take_off() -> None:
            for hooks in list(self._hooks):
                hooks.take_off()

        training = self._agent.training
        start = StepStart(training.safe_points, training.thread_id, take_off)
        start.begin()
        if not start.wait(_END_S):
            start.give_up()

    def _work(self, kept: PendingAction) -> None:
        """The body of an action's thread."""
        kept.word = self._record.begin(kept.number, kept.sender, kept.name, kept.arguments)
        try:
            ask_hooks("act", kept.name, kept.arguments)
            self._take_turn(kept)
            kept.future.set_result(kept.to_message())
        except ProbingError as error:
            state = "timed out" if isinstance(error, ActTimedOut) else "refused"
            self._settle(kept, Outcome(state, notes=(error.message,)))
            self._refuse(kept, error)
        except BaseException as error:  # noqa: BLE001 - the rim: what came of it, whatever it is
            what = f"{type(error).__name__}: {error}"
            self._settle(kept, Outcome("failed", notes=(what,)))
            self._refuse(kept, ActRefused(f"the action failed ({what})"))

    def _refuse(self, kept: PendingAction, error: ProbingError) -> None:
        """Tell who waits why there is nothing to wait for."""
        kept.future.set_exception(error)
        if not kept.prepared.done():
            kept.prepared.set_exception(error)

    def _take_turn(self, kept: PendingAction) -> None:
        """Wait for those before it, then carry it out, and say so before the next one looks.

        Raises:
            ActTimedOut: They take too long.
            ActRefused: Nobody wants it any more.
        """
        if not self._turn.acquire(timeout=kept.limit_s):
            raise ActTimedOut(kept.limit_s)
        try:
            kept.refuse_unwanted()
            self._settle(kept, self._carry_out(kept, kept.since + kept.limit_s))
        finally:
            self._turn.release()

    def _carry_out(self, kept: PendingAction, until: float) -> Outcome:
        """Prepare, wait for the place between two steps, apply, and finish."""
        scene = self._scene(watched(self._agent.training, ActRefused), kept, until)
        with scene.afterwards:
            return self._carry_out_in(scene, kept, until)

    def _carry_out_in(self, scene: Scene, kept: PendingAction, until: float) -> Outcome:
        """The same, in the scene that there is."""
        action = self._action(scene, kept)
        scene.refuse_unbegun()
        action.prepare(scene)
        found: list[tuple[Applied, int | None]] = []

        def work() -> None:
            found.append((action.apply(scene), scene.training.step()))

        waited_s, pause_s, is_at_call = wait_applied(kept, scene, work, until)
        applied, step = found[0]
        taken_back = kept.taken_back.number if kept.taken_back is not None else None
        how = Outcome("done", step, undoes=taken_back, waited_s=waited_s, pause_s=pause_s)
        self._tell_applied(kept, applied, how)
        applied = action.finish(scene, applied, until)
        with self._lock:
            kept.undo, kept.kind, kept.hooks = applied.undo, applied.kind, applied.hooks
            kept.optimizers = applied.optimizers
        notes = applied.notes
        if not is_at_call:
            notes += ("applied as a step's optimizer had stepped, before its scheduler could",)
        return how._replace(
            state="in force" if kept.is_in_force else "done", changes=applied.changes, notes=notes
        )

    def _tell_applied(self, kept: PendingAction, applied: Applied, how: Outcome) -> None:
        """Write down that it is in place, whatever comes of looking at the next steps.

        What is done by its end only, such as a file that is written, is told then.
        """
        kept.is_applied = True
        if applied.undo is None:
            return
        is_in_force = applied.hooks is not None and applied.hooks.hangs
        so_far = how._replace(
            state="in force" if is_in_force else "done",
            changes=applied.changes,
            notes=applied.notes,
            ran_s=time.monotonic() - kept.since,
        )
        self._record.end(kept.word, so_far)

    def _action(self, scene: Scene, kept: PendingAction) -> Action:
        """What does what is asked for."""
        from ..sources.actions.catalog import action_for

        if isinstance(kept.asked, Undo):
            kept.taken_back = self._undoable(kept.asked.number)
            refuse_undoing_alone(kept, kept.taken_back, kept.asked, scene.job)
            return _Undoing(kept.taken_back)
        if isinstance(kept.asked, Run):
            return self._agent.extensions().action(kept.asked)
        return action_for(kept.asked)

    def _scene(self, training: TorchTraining, kept: PendingAction, until: float) -> Scene:
        from ..sources.actions.targets.scene import Scene
        from ..sources.actions.targets.searches import Searches

        self._searches = self._searches or Searches()
        return Scene(
            training,
            self._hooks,
            self._searches,
            until,
            ring=self._ring,
            number=kept.number,
            ranks=kept.ranks,
            job=self._agent.card().job,
        )

    def _ring(self, table: Table) -> RingWriter:
        if table.name not in self._rings:
            self._rings[table.name] = self._agent.make_ring(table, _RING_ROWS)
        return self._rings[table.name]

    def _undoable(self, number: int | None) -> PendingAction:
        """The action that is to be undone.

        Raises:
            NoSuchAction: There is none.
        """
        with self._lock:
            if number is None:
                last = next((kept for kept in reversed(self._kept) if kept.can_be_undone), None)
                if last is None:
                    raise NoSuchAction("there is no action that could be undone")
                return last
            kept = next((kept for kept in self._kept if kept.number == number), None)
            if kept is None or not kept.can_be_undone:
                why = "is not known" if kept is None else why_not(kept)
                raise NoSuchAction(f"action {number} {why}")
            return kept

    def _settle(self, kept: PendingAction, outcome: Outcome) -> None:
        """Keep and write down how an action ended, and what that means for others."""
        kept.outcome = outcome._replace(ran_s=time.monotonic() - kept.since)
        self._record.end(kept.word, kept.outcome)
        if outcome.state not in {"done", "in force"}:
            return
        undone = kept.taken_back
        if undone is not None:
            undone.undo = None
            self._restate(undone, "undone" if outcome.changes else "overwritten")
            self._uncover(undone)
        if kept.kind is not None:
            with self._lock:
                kept.replaced = [k for k in self._kept if k is not kept and k.is_alike(kept)]
                found = list(kept.replaced)
                for below in found:
                    below.replaced_by.append(kept)
            for below in found:
                self._restate(below, "in force" if below.is_in_force else "done")

    def _uncover(self, undone: PendingAction) -> None:
        """What an action stood over is as it was before."""
        with self._lock:
            found, undone.replaced = undone.replaced, []
            for below in found:
                below.replaced_by.remove(undone)
        for below in found:
            self._restate(below, "in force" if below.is_in_force else "done")

    def _restate(self, kept: PendingAction, state: str) -> None:
        """An action stands so now."""
        if kept.outcome is not None and kept.outcome.state != state:
            kept.outcome = kept.outcome._replace(state=state)
            self._record.end(kept.word, kept.outcome)


class _Undoing:
    """Takes an action back: an action itself."""

    def __init__(self, kept: PendingAction) -> None:
        self._kept = kept

    def prepare(self, scene: object) -> None:
        """Nothing to look for."""

    def apply(self, scene: object) -> Applied:
        """Take it back."""
        from ..sources.actions.ledger import Applied

        assert self._kept.undo is not None
        undone = self._kept.undo()
        notes = tuple(
            [
                f"{change.what}: the script has overwritten what the action had set"
                f" ({change.before} -> {change.after}), so that was left as it is"
                for change in undone.overwritten
            ]
        )
        notes += undone.notes
        return Applied(changes=undone.changes, notes=notes)

    def finish(self, scene: object, applied: Applied, until: float) -> Applied:
        """Nothing more."""
        return applied
