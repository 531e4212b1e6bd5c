"""What was found where values are not finite, in a sentence or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....units import figure
from ..text import escape_controls, plural

if TYPE_CHECKING:
    from ....diagnosis.restarting import Restart
    from ....messages.common import Armed
    from ....postmortem.not_finite import NotFinite

Row = Mapping[str, Any]

_MOST_NAMED = 3
_HELD = ("parameter", "buffer")


def render_finding(
    armed: Armed,
    rows: Sequence[Row],
    *,
    evidence: str,
    endpoint: str,
    since: NotFinite | None = None,
    restart: Restart | None = None,
) -> str:
    """The finding, what followed, and the query that shows all of it.

    Args:
        since: Since when the loss has not been finite; None while it is.
        restart: From which checkpoint to start again, where it is not.
    """
    if armed.state == "failed":
        return f"the watch failed after {plural(armed.done, 'step')}: {armed.reason}"
    if not rows:
        return f"no module's output was non-finite in {plural(armed.done, 'step')}"
    weights = [row for row in rows if row["what"] in _HELD and row["role"] == "given"]
    if weights:
        lines = _weights_before(weights, armed.first_step, since)
        lines += _restart(restart)
        return escape_lines_of([*lines, f'  evidence: probing {endpoint} query "{evidence}"'])
    own = [row for row in rows if row["what"] == "parameter" and row["stage"] == "forward"]
    found = [row for row in rows if row not in own[:1]]
    lines = [f"step {rows[0]['step']}: {_sentence(found or list(rows))}"]
    if own and found:
        lines.append(f"  its own {_wrong(own[0])}, before it computes anything")
    followed = {row["module"] for row in found if row["role"] == "propagator"}
    if followed:
        lines.append(f"  {plural(len(followed), 'module')} passed them on in the rest of the step")
    lines += _restart(restart)
    lines.append(f'  evidence: probing {endpoint} query "{evidence}"')
    return escape_lines_of(lines)


def escape_lines_of(lines: Sequence[str]) -> str:
    """Lines that do not steer the terminal."""
    return "\n".join(escape_controls(line) for line in lines)


def render_armed(armed: Sequence[Armed]) -> str:
    """What is armed, a line each."""
    if not armed:
        return "nothing is armed, and nothing has been since the agent came"
    return escape_lines_of([progress_of(each) for each in armed])


def progress_of(armed: Armed) -> str:
    """How far it is, in words."""
    if armed.state == "failed":
        return f"{armed.what}: failed, {armed.reason}"
    found = f", {plural(armed.found, 'row')} written"
    if armed.state == "waiting":
        return f"{armed.what}: waiting for a step to begin, then {plural(armed.steps, 'step')}"
    if armed.state == "over":
        return f"{armed.what}: over after {plural(armed.done, 'step')}{found}"
    return f"{armed.what}: {armed.done} of {plural(armed.steps, 'step')} done{found}"


def _restart(restart: Restart | None) -> list[str]:
    return [] if restart is None else [f"  {line}" for line in restart.sentences()]


def _weights_before(rows: Sequence[Row], step: int | None, since: NotFinite | None) -> list[str]:
    """The weights were not finite before anything was watched: no module of this step did it."""
    first = rows[0]
    is_buffer = first["what"] == "buffer"
    kind = "other buffer" if is_buffer else "other parameter"
    more = f", and those of {plural(len(rows) - 1, kind)}" if len(rows) > 1 else ""
    whose = "buffers of the model" if is_buffer else "the weights"
    lines = [
        f"{whose} were not finite before step {step}, where the watch began:"
        f" {first['tensor']} of {_named(first)}, {first['shape']}, {_counts(first)}{more}",
        "  no module of this step is to blame: what made them so is over",
    ]
    if since is not None:
        lines.append(
            f"  {since.sentence()}: {whose} have been since that step or the one before;"
            " to see it happen, run from a checkpoint from before it and `arm nan` there"
        )
    return lines


def _sentence(rows: Sequence[Row]) -> str:
    """Who has made the first values that are not finite."""
    first = rows[0]
    name = _named(first)
    wrong = _wrong(first)
    if first["what"] == "loss":
        return f"no module's output was non-finite, but the loss is: it {_counts(first)}"
    if first["stage"] == "backward":
        return _backward_sentence(rows, name, wrong)
    given = f", from finite {first['given']}" if first["given"] else ""
    if given and first["given_max"] is not None:
        given += f" of at most {figure(first['given_max'])}"
    if first["what"] == "input":
        return (
            f"{name} was given non-finite values, which no module has made: its {wrong}. Look at"
            " the data, and at what the script computes before the call"
        )
    if first["what"] == "intermediate":
        return f"{name} made the first non-finite values in its own code: its {wrong}{given}"
    if first["what"] == "parameter":
        return f"{name} holds non-finite values: its {wrong}"
    if first["role"] == "propagator":
        return f"{name} passed non-finite values on: its {wrong}"
    return f"{name} made the first non-finite values: its {wrong}{given}"


def _backward_sentence(rows: Sequence[Row], name: str, wrong: str) -> str:
    """The same of gradients."""
    first = rows[0]
    start = "the forward pass is finite, but backwards"
    if first["role"] == "given":
        return (
            f"{start} {name} was given a non-finite gradient already, which no module made: that of"
            f" its {wrong}. Look at the loss, and at its scale"
        )
    if first["what"] == "intermediate":
        return f"{start} {name} made the first non-finite gradient in its own code: of {wrong}"
    same = [row for row in rows if row["role"] == "producer" and row["what"] == first["what"]]
    names = [_named(row) for row in same[:_MOST_NAMED]]
    more = f" or {len(same) - _MOST_NAMED} more" if len(same) > _MOST_NAMED else ""
    if first["what"] == "parameter":
        return f"{start} {name} made the first non-finite gradient: that of its {wrong}"
    return (
        f"{start} {' or '.join(names)}{more} made the first non-finite gradient, from a finite one:"
        f" that of its {wrong}"
    )


def _named(row: Row) -> str:
    if row["module"] is None:
        return "the script"
    return row["module"] if row["module"] == row["class"] else f"{row['module']} ({row['class']})"


def _wrong(row: Row) -> str:
    """What of it is wrong, and how."""
    what = {"grad": "input", "intermediate": "value"}.get(row["what"], row["what"])
    tensor = "" if row["what"] == "loss" else f" {row['tensor']}"
    return f"{what}{tensor}, {row['shape']}, {_counts(row)}"


def _counts(row: Row) -> str:
    kinds = [f"{row['nan_count']:,} NaN"] if row["nan_count"] else []
    kinds += [f"{row['inf_count']:,} Inf"] if row["inf_count"] else []
    largest = "" if row["finite_max"] is None else f", else at most {figure(row['finite_max'])}"
    return f"has {' and '.join(kinds)} ({_percent(row['share'])}{largest})"


def _percent(share: float) -> str:
    """A share of values; all of them are said to be all."""
    return "all of it" if share == 1 else f"{100 * share:.3g} % of it"
