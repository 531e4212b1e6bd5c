"""What differs between two runs: what came of it, what was set up otherwise, and the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....diagnosis.runs.levels import first_words, lost_words
from ....diagnosis.runs.record import Run, not_finite_in, not_finite_since
from ....units import duration, figure, size
from ..process.doctor import render_finding
from ..text import escape_controls, plural

if TYPE_CHECKING:
    from ....diagnosis.doctor.findings import Finding
    from ....diagnosis.runs.comparison import RunComparison
    from ....diagnosis.runs.effects import Measure
    from ....diagnosis.runs.setup import Difference

_WIDEST = 100
_VALUE = 40
_MODULES = 5
_NOT_SET = "(not set)"


def render_comparison(
    compared: RunComparison, findings: Sequence[Finding], *, width: int | None, color: bool
) -> str:
    """The comparison for a terminal."""
    room = min(width or _WIDEST, _WIDEST)
    blocks = ["\n".join(_head(compared, room))]
    blocks += [
        "\n".join(render_finding(number, finding, room, color=color))
        for number, finding in enumerate(findings, 1)
    ]
    if not findings:
        blocks.append(_no_finding(compared))
    blocks.append("\n".join(_differences(compared)))
    if compared.measures:
        blocks.append("\n".join(_figures(compared)))
    blocks.append("\n".join(_foot(compared)))
    return "\n\n".join(blocks)


def markdown_comparison(compared: RunComparison, findings: Sequence[Finding]) -> str:
    """The comparison as something to paste into an issue."""
    before, after = compared.before, compared.after
    blocks = [f"# {after.name} compared with {before.name}".replace("run ", "Run ", 1)]
    blocks += [
        f"## {number}. {escape_controls(finding.summary)}\n\n- **{finding.certainty}**,"
        f" `{finding.rule}`\n"
        + "\n".join(f"- {escape_controls(sentence)}" for sentence in finding.evidence)
        for number, finding in enumerate(findings, 1)
    ]
    if not findings:
        blocks.append(_no_finding(compared))
    table = ["```text", *_head(compared, _WIDEST), "", *_differences(compared), ""]
    blocks.append("\n".join([*table, *_figures(compared), "", *_foot(compared), "```"]))
    return "\n\n".join(blocks)


def _no_finding(compared: RunComparison) -> str:
    """What it says of the runs that nothing was found, as far as something was compared."""
    missed = {what for what, _ in compared.not_looked_at}
    ways = {
        "speed": "slower",
        "memory": "takes more memory",
        "loss": "has a higher loss",
    }
    seen = [words for what, words in ways.items() if what not in missed]
    if not seen:
        return "Nothing was compared but the set-up, as far as it is on record: see below."
    words = seen[0] if len(seen) == 1 else f"{', '.join(seen[:-1])} or {seen[-1]}"
    return f"Neither {'is ' if 'slower' in seen else ''}{words}, beyond chance."


def plain_comparison(compared: RunComparison) -> dict[str, Any]:
    """All but the findings, as JSON."""
    lost = compared.losses
    return {
        "runs": [
            _plain_run(run, count, changed)
            for run, count, changed in zip(
                (compared.before, compared.after),
                compared.steps,
                compared.not_committed,
                strict=True,
            )
        ],
        "has_common_steps": compared.has_common,
        "differences": [_plain_difference(one) for one in compared.differences],
        "measures": [_plain_measure(one) for one in compared.measures],
        "modules": [_plain_measure(one) for one in compared.modules],
        "loss": None
        if lost is None
        else {
            "compared_steps": lost.compared,
            "common_steps": lost.common,
            "first_other_step": lost.same_until,
            "before": lost.before,
            "after": lost.after,
            "gap": lost.gap,
        },
        "not_looked_at": [{"what": what, "why": why} for what, why in compared.not_looked_at],
    }


def _plain_run(run: Run, count: int, changed: tuple[str, ...] | None) -> dict[str, Any]:
    bad, since = not_finite_in(run.losses), not_finite_since(run.losses)
    return {
        "name": run.name.removeprefix("run "),
        "command": run.command,
        "state": run.state,
        "steps": len(run.steps),
        "compared": count,
        "not_finite_steps": len(bad),
        "first_not_finite_step": bad[0]["step"] if bad else None,
        "not_finite_since": None if since is None else since.step,
        "not_committed": None if changed is None else list(changed),
    }


def _plain_difference(one: Difference) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "before": one.before,
        "after": one.after,
        "is_secret": one.is_secret,
        "since_step": one.since_step,
        "can_change": [
            *one.reach.phases,
            *(["memory"] if one.reach.memory else []),
            *(["loss"] if one.reach.loss else []),
        ],
    }


def _plain_measure(one: Measure) -> dict[str, Any]:
    return {
        "name": one.name,
        "unit": one.unit,
        "before": one.before,
        "after": one.after,
        "ratio": one.ratio,
        "low_ratio": one.low_ratio,
        "high_ratio": one.high_ratio,
        "is_different": one.is_different,
    }


def _head(compared: RunComparison, room: int) -> Iterator[str]:
    """Which runs they are."""
    for run, changed in zip((compared.before, compared.after), compared.not_committed, strict=True):
        command = escape_controls(run.command)
        about = f"{run.name}: {run.state}, {plural(len(run.steps), 'step')}{_commit(run, changed)}"
        yield about
        limit = room - 2
        yield "  " + (command if len(command) <= limit else f"{command[: limit - 1]}…")


def _commit(run: Run, changed: tuple[str, ...] | None) -> str:
    """Which commit it is of, and what of it is not committed."""
    commit = run.environment.get(("code", "git commit"))
    if not commit:
        return ""
    if changed is None:
        return f", commit {commit[:10]}"
    if not changed:
        return f", commit {commit[:10]}, all of it committed"
    names = ", ".join(escape_controls(name) for name in changed[:2])
    more = f" and {len(changed) - 2} more" if len(changed) > 2 else ""
    return f", commit {commit[:10]} but for {names}{more}"


def _differences(compared: RunComparison) -> Iterator[str]:
    if not compared.differences and any(what == "set-up" for what, _ in compared.not_looked_at):
        return  # it is said below why that is not known
    if not compared.differences:
        yield "set up alike, as far as it is on record"
        return
    yield "set up otherwise:"
    width = min(44, max(len(one.label) for one in compared.differences))
    for one in compared.differences:
        if one.is_secret:
            values = "(a secret, another one)"
        elif one.kind == "code" and one.name.endswith(".py"):
            values = "has changed"
        else:
            values = f"{_value(one.before)} -> {_value(one.after)}"
        since = f", since step {one.since_step}" if one.since_step is not None else ""
        yield f"  {escape_controls(one.label):{width}}  {values}{since}"


def _value(value: str | None) -> str:
    if value is None:
        return _NOT_SET
    text = escape_controls(value)
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"


def _figures(compared: RunComparison) -> Iterator[str]:
    """The figures of both, and by how much they differ."""
    names = [run.name.removeprefix("run ") for run in (compared.before, compared.after)]
    widths = [max(10, len(name)) for name in names]
    changed = [one for one in compared.modules[:_MODULES] if one.ratio is not None]
    rows = [(f"{'  ' * (one.unit == 's' and one.name != 'step')}{one.name}", one)
            for one in compared.measures]  # fmt: skip
    rows += [(f"    {one.name}", one) for one in changed]
    room = max(len(name) for name, _ in rows) if rows else 0
    heads = f"{names[0]:>{widths[0]}}  {names[1]:>{widths[1]}}"
    yield f"{'each step':{room}}  {heads}   ratio  99 % interval"
    for name, one in rows:
        before, after = (_figure(one, value) for value in (one.before, one.after))
        ratio = "-" if one.ratio is None else f"{one.ratio:.2f}"
        between = (
            ""
            if one.low_ratio is None or one.high_ratio is None
            else f"{one.low_ratio:.2f} .. {one.high_ratio:.2f}"
        )
        mark = "  differs" if one.is_different else ""
        yield (
            f"{escape_controls(name):{room}}  {before:>{widths[0]}}  {after:>{widths[1]}}"
            f"  {ratio:>6}  {between}{mark}"
        ).rstrip()


def _figure(one: Measure, value: float | None) -> str:
    return size(value) if one.unit == "bytes" else duration(value)


def _foot(compared: RunComparison) -> Iterator[str]:
    """The losses, what was compared, and what was not."""
    if compared.losses is not None:
        lost = compared.losses
        same = first_words(lost)
        if lost.same_until is not None and lost.before is not None and lost.after is not None:
            which = f"the {lost.common} finite ones" if lost.common < lost.compared else "them"
            levels = f"{figure(lost.before)} and {figure(lost.after)}"
            same += f"; {levels} in the last quarter of {which}"
        yield same
    yield from filter(None, map(lost_words, (compared.before, compared.after)))
    first, second = compared.steps
    which = "the same" if compared.has_common else "not the same"
    yield f"{first} and {second} steps compared, {which}; the start, checkpoints and such left out"
    for what, why in compared.not_looked_at:
        yield f"not compared: {what} ({why})"
