"""Has something recorded in the next steps of a training, and waits for it.

Rules of this file: runs at the operator's side. What is armed ends by itself; a caller who leaves
before ends it at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..cluster.job.interruption import ends_the_wait
from ..errors import ArmRefused, ArmTimedOut, ConnectionLost, NotProbed, ProbingError, ProcessEnded
from ..messages import common as wire
from ..messages.frozen import InNotebooks, dataclass
from ..postmortem.not_finite import SINCE, NotFinite, since_of
from .restarting import Restart, newest_before

if TYPE_CHECKING:
    from ..client.base import Process

Tell = Callable[[wire.Armed], None]

_POLL_S = 0.1
_BY_CTRL_C = "Ctrl-C has ended it"
_ENDED = {"over", "failed"}
_FEW_STEPS = 8
FINDINGS = "FROM python.numerics WHERE arming = {number} ORDER BY seq"
GRADIENTS = (
    "SELECT step, parameter, norm, unclipped_norm, max_abs, nan_count, inf_count, zero_share,"
    " weight_norm, update_ratio, numel FROM python.gradients WHERE step BETWEEN {first} AND {last}"
    " ORDER BY isfinite(norm), step DESC, norm DESC"
)
_TRAINING = (
    "SELECT count(*) AS steps, count(coalesce(backward_s, gradients_s, optimizer_s)) AS training"
    " FROM (FROM python.steps WHERE duration IS NOT NULL ORDER BY step DESC LIMIT 100)"
)
_FEWEST_CALLS = 3
_NO_TRAINING = "`summary` tells of the calls. Where a training is yet to begin, ask again then."
_USUAL_NORM = (
    "SELECT median(grad_norm) AS norm FROM (SELECT grad_norm FROM python.steps WHERE step < {first}"
    " AND isfinite(grad_norm) ORDER BY step DESC LIMIT 64)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch(InNotebooks):
    """What watching some steps came to.

    Attributes:
        armed: How it ended.
        rows: The rows that were written, the first finding first.
        evidence: The query that gives them.
        since: Since when the loss has not been finite; None while it is, and where not asked for.
        restart: From which checkpoint to start again, where it is not, and one is known.
        usual_norm: The median norm of all gradients in the steps before; None where it is not on
            record.
    """

    armed: wire.Armed
    rows: tuple[dict[str, Any], ...]
    evidence: str
    since: NotFinite | None = None
    restart: Restart | None = None
    usual_norm: float | None = None


def watch_numbers(
    process: Process, steps: int, *, timeout_s: float, tell: Tell | None = None
) -> Watch:
    """Watch the next steps for values that are not finite.

    Args:
        timeout_s: How long any one step may take.
        tell: Called with how far it is, now and then.

    Raises:
        ProbingError: It cannot be armed, or no step ends in time.
    """
    armed = arm_and_wait(process, "nan", steps, timeout_s=timeout_s, tell=tell)
    evidence = FINDINGS.format(number=armed.number)
    rows, since = _rows(process, evidence), since_of(_rows(process, SINCE))
    restart = None if since is None else newest_before(process, since.step)
    return Watch(armed=armed, rows=rows, evidence=evidence, since=since, restart=restart)


def sample_gradients(
    process: Process, steps: int, *, timeout_s: float, tell: Tell | None = None
) -> Watch:
    """Have the gradients of the next steps written down.

    Args:
        timeout_s: How long any one step may take.
        tell: Called with how far it is, now and then.

    Raises:
        ArmRefused: Nothing is trained there.
        ProbingError: It cannot be armed, or no step ends in time.
    """
    _check_training(process)
    armed = arm_and_wait(process, "gradients", steps, timeout_s=timeout_s, tell=tell)
    evidence = GRADIENTS.format(first=armed.first_step or 0, last=armed.last_step or 0)
    rows = _rows(process, evidence) if armed.found else ()
    usual = _rows(process, _USUAL_NORM.format(first=armed.first_step or 0))
    return Watch(armed=armed, rows=rows, evidence=evidence, usual_norm=usual[0]["norm"])


def arm_and_wait(
    process: Process,
    what: str,
    steps: int,
    *,
    timeout_s: float,
    tell: Tell | None = None,
    addresses: tuple[int, ...] = (),
    cleaning: tuple[str, ...] = (),
    most_held_s: float | None = None,
) -> wire.Armed:
    """Arm something, and wait for its end, or for Ctrl-C; see `watch_numbers`.

    What somebody has armed of its kind is waited for where it is about to end, as when `doctor` has
    looked for a leak and was over before that was.
    """
    _wait_for_turn(process, what, timeout_s)
    answer = process.arm(
        what, steps, addresses=addresses, cleaning=cleaning, most_held_s=most_held_s
    )
    armed = _one(answer, what)
    try:
        while armed.state not in _ENDED:
            _check_time(armed, timeout_s)
            if tell is not None:
                tell(armed)
            time.sleep(_POLL_S)
            try:
                armed = _one(process.armed(), what)
            except (ConnectionLost, NotProbed, ProcessEnded) as error:
                note = f"it ended before its time: {error.message}"
                return dataclasses.replace(armed, state="over", notes=(*armed.notes, note))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and armed.done and ends_the_wait():
            ended = _one(process.arm(what, 0), what)
            return dataclasses.replace(ended, reason=_BY_CTRL_C)
        with contextlib.suppress(ProbingError):
            process.arm(what, 0)
        raise
    return armed


def _wait_for_turn(process: Process, what: str, timeout_s: float) -> None:
    """Wait while the same is about to end for somebody else, as long as its steps end.

    Raises:
        ArmTimedOut: None has for too long.
    """
    while earlier := [one for one in process.armed().armed if one.what == what and _ends(one)]:
        _check_time(earlier[0], timeout_s)
        time.sleep(_POLL_S)


def _ends(armed: wire.Armed) -> bool:
    """Whether something is in hand that has no more than a few steps to go."""
    return armed.state not in _ENDED and armed.steps - armed.done <= _FEW_STEPS


def _check_training(process: Process) -> None:
    """Make sure that the newest steps are not all calls of a model, as in a server of answers.

    Raises:
        ArmRefused: They are.
    """
    seen = _rows(process, _TRAINING)[0]
    if seen["steps"] >= _FEWEST_CALLS and not seen["training"]:
        calls = f"each of the last {seen['steps']} steps on record is a call of a model"
        raise ArmRefused(f"no training is seen, {calls} without a backward pass", help=_NO_TRAINING)


def _check_time(armed: wire.Armed, timeout_s: float) -> None:
    """Make sure that steps still end.

    Raises:
        ArmTimedOut: None has for too long.
    """
    if armed.still_s > timeout_s:
        raise ArmTimedOut(timeout_s, armed.done, armed.steps, notes=armed.notes)


def _one(answer: wire.ArmedAnswer, what: str) -> wire.Armed:
    """The answer about one kind."""
    return next(armed for armed in answer.armed if armed.what == what)


def _rows(process: Process, query: str) -> tuple[dict[str, Any], ...]:
    """The rows of a query."""
    return tuple(process.query(query).to_pylist())
