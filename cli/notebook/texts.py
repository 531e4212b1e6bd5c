"""Answers as the text that the command of the same name prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from ..render.text import wrap_lines

WIDTH = 110


def text_of(value: Any) -> str:
    """The text of an answer; of what no command prints, its `repr`."""
    told = _TEXTS.get(type(value).__name__)
    return repr(value) if told is None else told(value, WIDTH)


def _renderer(place: str) -> Callable[..., str]:
    """A renderer, by its module and name."""
    module, _, name = place.partition(":")
    render: Callable[..., str] = getattr(import_module(f"..render.{module}", __package__), name)
    return render


def _drawn(place: str, value: Any, width: int, **more: Any) -> str:
    """What a renderer makes of it that knows of widths and colours."""
    return wrap_lines(_renderer(place)(value, width=width, color=False, **more), width)


def _fitted(place: str, value: Any, width: int, of: str | None = None) -> str:
    """What one makes of it, or of a part of it, that knows of widths only."""
    return _renderer(place)(value if of is None else getattr(value, of), width=width)


def _plain(place: str, value: Any, _: int, of: str | None = None) -> str:
    """What one makes that knows of neither."""
    return _renderer(place)(value if of is None else getattr(value, of))


def _backtrace(backtrace: Any, width: int) -> str:
    from ..render.process.stacks import render_backtrace

    return wrap_lines(render_backtrace(backtrace), width)


def _gradients(watch: Any, width: int) -> str:
    if watch.armed.state == "failed":
        return f"they could not be read: {watch.armed.reason}"
    place = "training.gradients:render_gradients"
    return _drawn(place, watch.rows, width, most=20, usual_norm=watch.usual_norm)


def _comparison(compared: Any, width: int) -> str:
    from ...diagnosis.doctor.against import findings_of

    names = (compared.before.name, compared.after.name)
    findings = findings_of(compared, names, command="probing diff")
    return _drawn("ranks.runs:render_comparison", compared, width, findings=findings)


def _profile(found: Any, width: int) -> str:
    from ..render.profiling.tables import profile_head, profile_sections
    from ..render.sections import render_sections

    profile = found.profile
    sections = profile_sections(profile)
    return render_sections(profile_head(profile, None), sections, width=width, color=False)


def _settings(answer: Any, width: int) -> str:
    more = {"unknown": answer.unknown, "is_whole": False}
    return _drawn("process.settings:render_settings", answer.settings, width, **more)


def _tables(answer: Any, width: int) -> str:
    more = {"now_ns": time.time_ns(), "is_whole": False}
    return _drawn("process.catalog:render_tables", answer, width, **more)


def _result(result: Any, _: int) -> str:
    from ..render.process.evaluation import render_result

    return f"{render_result(result)}{result.error or ''}"


_TEXTS: dict[str, Callable[[Any, int], str]] = {
    "Backtrace": _backtrace,
    "MemoryReport": partial(_drawn, "memory.report:render_memory"),
    "Report": partial(_drawn, "process.doctor:render_report"),
    "Summary": partial(_drawn, "training.summary:render_summary"),
    "LoaderReport": partial(_drawn, "training.dataloaders:render_loaders"),
    "LeakReport": partial(_drawn, "memory.leak:render_leak"),
    "OomReport": partial(_drawn, "memory.oom:render_oom", most=20),
    "FitAnswer": partial(_drawn, "memory.fit:render_fit", limit_bytes=None),
    "Recording": partial(_drawn, "memory.recording:render_recording"),
    "StragglerReport": partial(_drawn, "ranks.stragglers:render_stragglers"),
    "RunComparison": _comparison,
    "Verdict": partial(_fitted, "ranks.hang:render_verdict"),
    "Watch": _gradients,
    "StepsProfile": _profile,
    "SettingsAnswer": _settings,
    "TablesAnswer": _tables,
    "LabelsAnswer": partial(_fitted, "training.labels:render_labels"),
    "EvalResult": _result,
    "Act": partial(_plain, "process.actions:render_act"),
    "Acts": partial(_fitted, "process.actions:render_acts", of="acts"),
    "EvalJobs": partial(_plain, "process.eval_jobs:render_jobs", of="jobs"),
    "ArmedAnswer": partial(_plain, "training.numerics:render_armed", of="armed"),
}
