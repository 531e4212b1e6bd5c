"""A process that can be asked, wherever it is and whatever state it is in.

Rules of this file: runs at the operator's side. What can be answered from the process's files is
answered from them, without its help; what needs its agent is one request to it; what can be had
from outside where it does not answer is, and `notes` says so. How it is reached is its transport's
to know. Heavy libraries are imported by the method that needs them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ..attach.injectors.names import AUTO
from ..errors import CardDamaged, ConnectionLost, NotProbed, UsageError
from ..messages import common as wire
from ..messages.about.act import Act, Acts, Asked, Commit, Prepared, request_for
from ..messages.about.allocation import RECORD_STEPS, RecordRequest, RecordStatus
from ..messages.about.fit import FitAnswer, FitRequest
from ..messages.about.labels import LabelsAnswer, LabelsRequest
from ..messages.limits import grace_s, ready_s
from ..reach import ladder
from ..ring import peek as ring_peek
from ..tables import ENVIRONMENT
from ..tables.remaining import what_remains
from .lost import POLL_S, unsure_of_action
from .running_code import RunningCode
from .transports import environment_of, live_rows, query_agent

if TYPE_CHECKING:
    from ..allocations import Recording
    from ..attach.attach import Attached
    from ..profiling import Samples
    from ..profiling.sampling import Tell as TellSeconds
    from ..sql.answer import Answer
    from ..sql.plain import PlainAnswer
    from .profile_client import StepsProfile, Tell as TellSteps
    from .recording_client import Tell as TellRecording

_FIT_S = 60.0
_LONGEST_ACT_S = 3600.0
"""How long an action may take once it has begun, such as a checkpoint being written."""
_UNCHANGEABLE = "nothing can be changed in it"


class Process(RunningCode):
    """A process that can be asked.

    Every method raises a `ProbingError` when there is no answer, with the way out in its
    ``help``.

    Attributes:
        label: What the user called it.
        folder: Its run folder; None where it is reached through its agent alone, or has none.
    """

    def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> Answer:
        """Run one read-only SQL statement over its tables."""
        if not isinstance(sql, str):
            raise UsageError(f"query takes a statement as a text, and {sql!r} is none.")
        limit_s = timeout_s or self._timeout_s
        folder = self._transport.record()
        if folder is not None:
            from .providers import over_record

            engine = over_record(folder, self._notes, timeout_s=limit_s)
            return engine.run(sql, timeout_s=limit_s, max_rows=max_rows)
        request = wire.QueryRequest(sql=sql, timeout_s=limit_s, max_rows=max_rows)
        with self._transport.asking("its record is gone", limit_s) as address:
            return query_agent(address, request, limit_s)

    def _query_plain(
        self, sql: str, *, timeout_s: float, max_rows: int | None = None
    ) -> PlainAnswer | Answer:
        """As `query`, with rows in Python's own values where they can be had without Arrow."""
        folder = self._transport.record()
        if folder is None:
            return self.query(sql, timeout_s=timeout_s, max_rows=max_rows)
        from .providers import over_record

        engine = over_record(folder, self._notes, timeout_s=timeout_s)
        return engine.run_plain(sql, timeout_s=timeout_s, max_rows=max_rows)

    def act(self, asked: Asked, *, timeout_s: float | None = None) -> Act:
        """Change something in its training, between two of its steps.

        Args:
            asked: What, such as ``Lr(scale=0.1)`` of `probing.messages.about.act`.
            timeout_s: How long the end of a step may be waited for.
        """
        limit_s = timeout_s or self._timeout_s
        request = request_for(asked, limit_s)
        return self._post(
            Act,
            "act",
            request,
            _UNCHANGEABLE,
            timeout_s=limit_s,
            grace_s=_LONGEST_ACT_S,
            unsure=unsure_of_action(request),
        )

    def prepare_act(self, asked: Asked, *, ranks: int, timeout_s: float | None = None) -> Prepared:
        """Begin with a change that several ranks are to apply at one step of all.

        See `probing.cluster.job.same_step`; returns once this one could.
        """
        limit_s = timeout_s or self._timeout_s
        request = request_for(asked, limit_s, ranks)
        return self._post(
            Prepared, "act_prepare", request, _UNCHANGEABLE, timeout_s=limit_s, grace_s=grace_s()
        )

    def commit_act(self, commit: Commit) -> None:
        """Say where a prepared change is applied, or give it up."""
        self._post(Commit, "act_commit", commit, _UNCHANGEABLE)

    def acts(self) -> Acts:
        """The last actions, and how they stand."""
        return self._get(
            Acts, "acts", "its actions are on record: `query 'FROM python.actions'` has them"
        )

    def backtrace(self, *, native: bool = False, locals: bool = False) -> wire.Backtrace:
        """The stack of every thread.

        Args:
            native: Also the frames of C functions, for which a live process is paused; only on
                this machine.
            locals: Also short texts of the local variables.
        """
        folder, pid = self._transport.folder, self._transport.pid
        if folder is not None:
            return ladder.backtrace_of(folder, self._notes, native=native, locals=locals)
        if pid is not None:
            return ladder.backtrace_of_stranger(pid, self._notes, native=native, locals=locals)
        if native:
            self._notes.append(
                "frames of C functions are left out: only a command on the process's own machine"
                " can read them"
            )
        flags = ("locals",) if locals else ()
        return self._get(wire.Backtrace, "backtrace", "it has no stacks any more", flags=flags)

    def live(
        self,
        table: str,
        *,
        wait_s: float | None = None,
        patient: bool = False,
        only_random: bool = False,
    ) -> wire.LiveRows:
        """The rows of a live table, as the agent computes them now.

        Args:
            wait_s: How long what only the next step can show may be waited for; None for not at
                all. See the columns of python.modules.
            patient: Whether to wait as long even while the training makes no progress.
            only_random: Of python.parameter_checksums only the states of random generators, for
                which the training is hardly held.
        """
        flags = {"patient": patient, "only_random": only_random}

        def ask_agent() -> wire.LiveRows:
            lost = f"the table {table} can no longer be asked{what_remains(table)}"
            with self._transport.asking(lost, self._timeout_s) as address:
                return live_rows(
                    address,
                    table,
                    timeout_s=self._timeout_s,
                    wait_s=wait_s,
                    flags=[name for name, is_set in flags.items() if is_set],
                )

        folder = self._transport.folder
        if table == ENVIRONMENT.name and folder is not None:
            return environment_of(folder, ask_agent)
        return ask_agent()

    def profile(
        self, steps: int = 3, *, timeout_s: float | None = None, tell: TellSteps | None = None
    ) -> StepsProfile:
        """Run torch.profiler over its next training steps.

        Args:
            timeout_s: How long any one step may take.
            tell: Called with how far it is, each time that has changed.
        """
        from .profile_client import profile_steps, read_profile

        limit_s = timeout_s or self._timeout_s
        try:
            with self._transport.asking("its steps can be profiled no more", limit_s) as address:
                data = profile_steps(address, steps, timeout_s=limit_s, tell=tell)
        except ConnectionLost:
            if self._transport.pid is None:
                raise
            raise NotProbed(self._transport.pid, "its agent left it meanwhile") from None
        return read_profile(data, self.query)

    def sample(
        self,
        seconds: float = 10.0,
        *,
        hz: int = 100,
        idle: bool = False,
        gil: bool = False,
        timeline: bool = False,
        tell: TellSeconds | None = None,
    ) -> Samples:
        """Sample the stacks of all its threads from outside; only on this machine.

        Args:
            idle: Also of threads that wait.
            gil: Only of the thread that holds the interpreter lock (GIL).
            timeline: Keep them in the order of time, as a Chrome trace, instead of counting them.
            tell: Called with the seconds that have passed, now and then.
        """
        from ..profiling.sampling import sample
        from ..stacks.py_spy import Record

        how = Record(seconds=seconds, hz=hz, idle=idle, gil=gil, timeline=timeline)
        return sample(self._pid_here("profile --sampling"), how, self._notes, tell)

    def arm(
        self,
        what: str,
        steps: int,
        *,
        addresses: tuple[int, ...] = (),
        cleaning: tuple[str, ...] = (),
        most_held_s: float | None = None,
    ) -> wire.ArmedAnswer:
        """Record something in the next training steps, or with 0 steps end that; returns at once.

        Args:
            what: ``nan`` for python.numerics, ``gradients`` for python.gradients, ``leak`` for
                python.leaks, ``referrers`` for python.referrers, ``clean`` to clean up memory at
                the end of a step.
            addresses: Where the storages are that ``referrers`` asks about.
            cleaning: What ``clean`` does: ``gc``, ``empty_cache`` or ``reset_peaks``.
            most_held_s: How long ``leak`` may hold the training in all: it watches fewer steps or
                gives up where that is not enough; None: as long as it takes.
        """
        request = wire.ArmRequest(
            what=what, steps=steps, addresses=addresses, cleaning=cleaning, most_held_s=most_held_s
        )
        return self._post(wire.ArmedAnswer, "arm", request, "nothing can be armed in it")

    def armed(self) -> wire.ArmedAnswer:
        """What is recorded on demand, and how far it is."""
        return self._get(wire.ArmedAnswer, "armed", "nothing is armed in it")

    def record_allocations(self, state: str, *, steps: int | None = None) -> RecordStatus:
        """Begin or end to record allocations; returns at once.

        Args:
            state: ``on`` or ``off``.
            steps: How many steps at most, where torch.profiler sees them.
        """
        request = RecordRequest(state=state, steps=RECORD_STEPS if steps is None else steps)
        return self._post(RecordStatus, "record", request, "nothing can be recorded in it")

    def snapshot(
        self,
        *,
        steps: int | None = None,
        timeout_s: float | None = None,
        tell: TellRecording | None = None,
        first_step: int | None = None,
    ) -> Recording:
        """The allocations that were recorded; where none were, those of its next steps.

        Args:
            timeout_s: How long any one step may take.
            tell: Called with how far it is, each time that has changed.
            first_step: The first step to record, on the CPU; None for the next.
        """
        from .recording_client import last_recording, take_snapshot

        folder, limit_s = self._transport.record(), timeout_s or self._timeout_s
        if folder is not None and not folder.is_alive():
            last = last_recording(folder.allocations)
            if last is not None:
                self._notes.append("the process has ended; this is the last that it recorded")
                return last
        with self._transport.asking("nothing was recorded in it", limit_s) as address:
            return take_snapshot(
                address, steps, timeout_s=limit_s, tell=tell, first_step=first_step
            )

    def tables(self) -> wire.TablesAnswer:
        """How many rows each table holds and has lost."""
        folder = self._transport.record()
        if folder is not None:
            return ring_peek.tables_answer(folder)
        return self._get(wire.TablesAnswer, "tables", "its tables are gone")

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> LabelsAnswer:
        """Tokens beside labels of the next batch that the training reads."""
        limit_s = timeout_s or self._timeout_s
        request = LabelsRequest(samples=samples, timeout_s=limit_s)
        lost = "it reads no batch any more"
        return self._post(
            LabelsAnswer, "labels", request, lost, timeout_s=limit_s, grace_s=grace_s()
        )

    def fit(self, request: FitRequest) -> FitAnswer:
        """Predict the peak of memory of a training step in another shape, without running it."""
        limit_s, lost = request.timeout_s or _FIT_S, "it trains no more"
        return self._post(FitAnswer, "fit", request, lost, timeout_s=limit_s, grace_s=grace_s())

    def status(self) -> wire.Card:
        """Who it is, by its pid here."""
        folder = self._transport.record()
        card = None if folder is None else folder.read_card()
        if card is None and folder is not None and not folder.is_alive():
            raise CardDamaged(str(folder.path))
        card = card or self._get(wire.Card, "status", "its card cannot be read")
        return card if folder is None else replace(card, pid=folder.pid)

    def settings(self) -> wire.SettingsAnswer:
        """The settings in force."""
        return self._get(wire.SettingsAnswer, "settings", "its settings are gone")

    def set(self, name: str, value: str | float | bool) -> wire.SettingsAnswer:  # noqa: FBT001
        """Change one setting."""
        request = wire.SettingChange(name=name, value=str(value))
        return self._post(wire.SettingsAnswer, "set", request, "nothing can be set in it")

    def attach(self, *, how: str = AUTO, timeout_s: float | None = None) -> Attached:
        """Put the agent into it, unless it is there; see `probing.attach.attach.attach`."""
        from ..attach.attach import attach

        pid = self._pid_here("attach", "nothing can be put into it")
        return attach(pid, how=how, timeout_s=timeout_s)

    def detach(self, *, keep_record: bool = False) -> wire.Detached:
        """Take the agent out of it.

        Args:
            keep_record: Whether to keep what was recorded.
        """
        try:
            folder = self._transport.record()
        except NotProbed:
            pid = self._pid_here("detach")
            raise NotProbed(pid, "it has no probing agent that could leave it") from None
        request = wire.DetachRequest(keep_record=keep_record)
        detached = self._post(wire.Detached, "detach", request, "its agent has ended with it")
        if folder is not None:
            last = folder.socket if keep_record else folder.path
            end = time.monotonic() + ready_s()
            while last.exists() and time.monotonic() < end:  # it answers before it leaves
                time.sleep(POLL_S)
        return detached

    def notes(self) -> list[str]:
        """Sentences about how the answers came about; each is told once."""
        told = []
        while self._notes:
            told.append(self._notes.pop(0))
        return told
