"""The errors of what is recorded, always or on demand."""

from __future__ import annotations

from .root import ProbingError, Refused, TimedOut, UsageError


class BadSetting(UsageError):
    """A setting is unknown, or its value is not one it can take."""

    code = "bad_setting"
    help = "`probing ENDPOINT config` lists the settings with their values and meaning."

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"setting {name}: {reason}.")
        self.name = name


class BadTable(UsageError):
    """A script or a plugin declares a table that there cannot be."""

    code = "bad_table"
    help = (
        "`probing.table('rewards', {'episode': int, 'reward': float, 'note': str})` is how a table"
        " is declared; `probing ENDPOINT tables` lists the names that are taken."
    )

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"table {name}: {reason}.")
        self.name = name


class RingError(ProbingError):
    """A ring file cannot be made or read."""

    code = "ring"
    help = "This table is missing or not whole; the other tables are there."

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"ring {source}: {reason}.")


class CardDamaged(ProbingError):
    """The card of a process that has ended cannot be read."""

    code = "card_damaged"
    help = "What else is on its record can be asked: `probing ENDPOINT query`, `tables`, `oom`."

    def __init__(self, folder: str) -> None:
        super().__init__(f"the card in {folder} is damaged or missing: who it was is not known.")


class ArmRefused(Refused):
    """Nothing can be recorded on demand as things are."""

    code = "arm_refused"
    status = 409
    help = "`arm` alone shows what is armed, and `arm WHAT --off` ends it."

    def __init__(self, why: str, *, help: str | None = None) -> None:
        super().__init__(f"it cannot be armed: {why}.", help=help)


class ArmTimedOut(TimedOut):
    """The training did not come to the end of a step in time."""

    code = "arm_timed_out"
    help = "Give it more time with --timeout SECONDS. `backtrace` shows what it is doing."

    def __init__(
        self, seconds: float, done: int, steps: int, *, notes: tuple[str, ...] = ()
    ) -> None:
        why = f" ({'; '.join(notes)})" if notes else ""
        super().__init__(
            f"the training did not reach the end of a step within {seconds:g} s{why};"
            f" {done} of {steps} steps are done, and the rest was called off."
        )


class ProfileRefused(Refused):
    """The steps of a process cannot be profiled as things are."""

    code = "profile_refused"
    status = 409
    help = "`profile --sampling 100` works on every Python process, from outside."

    def __init__(self, why: str, *, help: str | None = None) -> None:
        super().__init__(f"no steps can be profiled: {why}.", help=help)


class ProfileTimedOut(TimedOut):
    """The training did not come to the end of a step in time."""

    code = "profile_timed_out"
    help = (
        "Give it more time with --timeout SECONDS. `backtrace` shows what it is doing, and `profile"
        " --sampling 100` profiles it without its help."
    )

    def __init__(self, seconds: float, what: str) -> None:
        super().__init__(
            f"the training did not reach the end of a step within {seconds:g} s, so {what}."
        )


class NoBatch(TimedOut):
    """The training has neither fetched a batch nor called its model in time."""

    code = "no_batch"
    help = (
        "`probing ENDPOINT backtrace` shows where it is; `probing ENDPOINT dataloaders` whether it"
        " waits for a batch."
    )

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"the training has neither fetched a batch nor called its model within {limit_s:g} s."
        )


class NoLabels(ProbingError):
    """What the training reads has no label for each token."""

    code = "no_labels"
    status = 404
    help = (
        "Labels are looked for among integer tensors with two dimensions, by names such as"
        " input_ids and labels, and by their order where they have no names."
    )

    def __init__(self, seen: str) -> None:
        super().__init__(f"no tokens with labels are among what the training reads: {seen}.")
