"""What stands in the place of a training while torch has not been imported.

Rules of this file: has whatever of `TorchTraining` is asked for without knowing which of them it
is; does nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .safe_points import SafePoints

if TYPE_CHECKING:
    from ...errors import ProbingError
    from ..sources.data.dataloaders import DataLoaders
    from ..sources.leaks.references.referrers import ReferrerSearch
    from ..sources.leaks.watch import LeakWatch
    from ..sources.shared.recording import Recording
    from .source import SourceReport
    from .training import TorchTraining


class NoTraining:
    """Stands in while torch has not been imported: nothing to wait for, nothing to hold."""

    def __init__(self) -> None:
        self.safe_points = SafePoints()
        self.leaks: LeakWatch | None = None
        self.referrers: ReferrerSearch | None = None
        self.dataloaders: DataLoaders | None = None

    def begin(self) -> None:
        """Nothing is waited for."""

    def start(self, *, late: bool = False) -> None:
        """Nothing to record."""

    def pause(self) -> None:
        """Nothing to pause."""

    def close(self) -> None:
        """Nothing to close."""

    def ended_by(self, error: BaseException) -> None:
        """There is no table for it."""

    def remains(self) -> list[str]:
        """Nothing was put in place."""
        return []

    def sample_gradients(self, every: int) -> None:
        """There are none; the setting is read when torch comes."""

    def sample_stacks(self, hz: float) -> None:
        """As `sample_gradients`."""

    def problems(self) -> list[str]:
        """No problems."""
        return []

    def source_reports(self) -> list[SourceReport]:
        """There is no source."""
        return []

    def is_moving(self) -> bool:
        """Nothing moves."""
        return False

    def thread_id(self) -> int:
        """There is no training thread."""
        return 0

    def step(self) -> int | None:
        """No step is counted."""
        return None

    def told_step(self) -> int | None:
        """No step is counted."""
        return None

    def watched(self) -> Recording | None:
        """There is nothing to make them from."""
        return None

    def configuration(self) -> dict[str, str]:
        """Nothing was set up."""
        return {}

    def segments(self) -> list[dict[str, Any]] | None:
        """There is no accelerator."""
        return None

    def pinned_memory(self) -> None:
        """Nor is anything pinned for one."""

    def check_devices(self) -> tuple[()]:
        """None is known to be in use."""
        return ()

    def allocator_history(self) -> dict[str, Any] | None:
        """Nor a history of its allocator."""
        return None

    def names(self) -> Mapping[str, Any]:
        """Nothing has been seen."""
        return {}

    def use_device(self) -> None:
        """None is known to be in use."""


def watched(
    training: TorchTraining | NoTraining,
    refused: Callable[..., ProbingError],
    *,
    unseen: str = "the ends of steps are not seen",
    help_without: str | None = None,
) -> TorchTraining:
    """A training whose steps are seen.

    Args:
        refused: The error of what was asked for, made from a reason and a help.
        unseen: What is not seen while recording is off.
        help_without: What to do where there is no training; None for what that error always says.

    Raises:
        ProbingError: They are not: an error made by `refused`.
    """
    if isinstance(training, NoTraining):
        why = "the process has not imported torch"
        if torch_is_ready():
            why = "nothing can be recorded in the process; `status` says why"
        raise refused(why, help=help_without)
    if not training.is_recording():
        why = f"recording is off, so that {unseen}"
        raise refused(why, help="`config recording=true` turns it on.")
    return training


def torch_is_ready() -> bool:
    """Whether torch has been imported, far enough to be watched."""
    torch = sys.modules.get("torch")
    return all(hasattr(torch, part) for part in ("nn", "optim", "compiler"))
