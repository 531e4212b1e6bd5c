"""Data loaders: what each is, its workers, and the waits that are too long."""

from __future__ import annotations

from ....diagnosis.dataloading import Loader, LoaderReport, Stall, Worker, sentence_of
from ....units import age, duration, figure, size
from ..process.stacks import STATES, render_frames
from ..table import columns, draw_table
from ..text import escape_controls, plural, wrap_text

_HEADINGS = columns(">worker", ">pid", "state", ">CPU", ">resident", ">batches pending")


def render_loaders(report: LoaderReport, *, width: int | None, color: bool) -> str:
    """Every loader under a line of its own; the waits that are too long come last."""
    share = _share(report)
    if not report.loaders:
        none = (
            "no DataLoader is alive that the agent has met: the training does not use one, or has"
            " fetched no batch since the agent came"
        )
        return "\n".join([*share, *wrap_text(none, width)])
    blocks = ["\n".join(share)] if share else []
    blocks += [_render_loader(loader, width=width, color=color) for loader in report.loaders]
    blocks += [_render_stall(stall) for stall in report.stalls]
    return "\n\n".join(blocks)


def _share(report: LoaderReport) -> list[str]:
    """Whether it is the data that the training's time goes into."""
    if report.wait_share is None:
        return []
    return [
        f"the training waits for data {figure(100 * report.wait_share, 2)} % of its time"
        f" (last {plural(report.steps, 'step')})"
    ]


def _render_loader(loader: Loader, *, width: int | None, color: bool) -> str:
    lines = [f"loader {loader.loader}: {', '.join(_made_of(loader))}", f"  {_progress(loader)}"]
    if loader.workers:
        rows = [_row(worker) for worker in loader.workers]
        room = None if width is None else max(width - 2, 1)
        drawing = draw_table(_HEADINGS, rows, width=room, color=color)
        lines += [f"  {line}" for line in (*drawing.heading, *drawing.rows)]
    return "\n".join(lines)


def _made_of(loader: Loader) -> list[str]:
    """What a loader was made with, in words."""
    words = [escape_controls(loader.dataset)]
    if loader.batches is not None:
        words.append(f"{_batches(loader.batches)} per epoch")
    if loader.batch_size is not None:
        words.append(f"{plural(loader.batch_size, 'sample')} per batch")
    words.append(plural(loader.num_workers, "worker") if loader.num_workers else "no workers")
    if loader.prefetch_factor is not None:
        words.append(f"{_batches(loader.prefetch_factor)} ahead each")
    if loader.persistent_workers:
        words.append("persistent")
    words.append("pinned memory" if loader.pin_memory else "not pinned")
    return words


def _progress(loader: Loader) -> str:
    """How far a loader is, and how long it is waited for."""
    if loader.batch is None:
        words = [f"between two epochs; {_batches(loader.given)} given since the agent came"]
    else:
        given = f"{_batches(loader.batch)} given in this epoch"
        words = [f"{given}, {loader.given:,} since the agent came"]
    if loader.mean_wait is not None and loader.last_wait is not None:
        mean, last = duration(loader.mean_wait), duration(loader.last_wait)
        words.append(f"waited for {mean} on average, {last} for the last")
    if loader.outstanding is not None:
        words.append(f"{loader.outstanding:,} outstanding")
    return "; ".join(words)


def _row(worker: Worker) -> list[str | None]:
    state = "ended" if worker.has_ended else STATES.get(worker.state or "", worker.state)
    resident = worker.resident_bytes
    return [
        str(worker.worker),
        None if worker.pid is None else str(worker.pid),
        state,
        None if worker.cpu_s is None else age(worker.cpu_s),
        None if resident is None else size(resident),
        str(worker.tasks),
    ]


def _render_stall(stall: Stall) -> str:
    lines = [escape_controls(sentence_of(stall))]
    if stall.stack is not None:
        lines += render_frames(tuple(reversed(stall.stack.frames)))
    return "\n".join(lines)


def _batches(count: int) -> str:
    return f"{count:,} batch{'' if count == 1 else 'es'}"
