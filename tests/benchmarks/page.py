"""The page of `probing web`, measured in a real browser: how soon, how smooth, and at what cost.

Times are the page's own, from its clock, by an observer that is there before its script is; frames
are counted where they are drawn. The browser draws without a graphics card.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from probing.linux import process
from probing.tables import TABLES_BY_NAME
from tests.harness.browser import Browser, browser
from tests.harness.ring_writer import RingWriter, save_names
from tests.harness.targets import ROOT, Target, start_program
from tests.harness.web import Web, web

from .measures import Measure, rounds_for, slowdowns

_STEPS, _BOXES, _RANKS = 1_000_000, 100_000, 8
_WINDOW_S = 20.0
_LOOKED_S = 1.0
"""How long a person looks at a plot, at least."""
_WATCH = """
window.firstSeen = new Promise((resolve) => {
  const look = () => {
    if (document.querySelector("tr[data-endpoint]")) resolve(performance.now());
    else requestAnimationFrame(look);
  };
  look();
});
"""
_ZOOM = """(async () => {
  const told = () => document.querySelector(".summary")?.textContent ?? "";
  const [before, began] = [told(), performance.now()];
  location.hash = %s;
  while (told() === before) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - began;
})()"""
_FRAMES = """(async () => {
  const canvas = document.querySelector(".icicle canvas");
  const box = canvas.getBoundingClientRect();
  const turn = (deltaY) => canvas.dispatchEvent(new WheelEvent("wheel", {
    deltaY, clientX: box.x + box.width * 0.4, clientY: box.y + 50, cancelable: true }));
  const times = [performance.now()];
  for (let frame = 0; frame < 120; frame++) {
    turn(frame % 60 < 30 ? -60 : 60);
    times.push(await new Promise(requestAnimationFrame));
  }
  return 1000 * 120 / (times[120] - times[0]);
})()"""


def measure(effort: float) -> Iterator[Measure]:
    """The first view, a new plot, frames, the cost to trainings, and what grows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from _record(folder, effort)
        yield from _ranks(folder, effort)


def _record(folder: Path, effort: float) -> Iterator[Measure]:
    """Of the record of a run with very many steps and calls."""
    rounds = rounds_for(10, effort)
    steps, boxes = (_STEPS, _BOXES) if effort > 0.01 else (10_000, 1_000)
    where = _long_run(folder / "long", steps, boxes)
    firsts, plots, frames = [], [], []
    with browser(folder) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        page.show(theme="light", width=1280)
        for number in range(rounds):
            with web(folder / f"web{number}", folder / "long" / "home", where) as served:
                firsts.append(_first_view(page, served) / 1e3)
        with web(folder / "web", folder / "long" / "home", where) as served:
            _first_view(page, served)
            of = quote(where, safe="")
            page.evaluate(f"location.hash = '#/steps?of={of}'")
            page.wait_for("document.querySelector('.summary')?.textContent.includes('on record')")
            for number in range(1, rounds + 1):
                address = json.dumps(f"#/steps?of={of}&from={number}")
                time.sleep(_LOOKED_S)  # until the one before is drawn, with what stands beside it
                plots.append(page.evaluate(_ZOOM % address) / 1e3)
            page.evaluate(f"location.hash = '#/step?of={of}'")
            page.wait_for("document.querySelector('.told')?.textContent.includes('are shown of')")
            frames += [page.evaluate(_FRAMES) for _ in range(rounds)]
    yield Measure(what="first view, command just started", unit="s", values=tuple(firsts), must=0.7)
    yield Measure(what=f"a new plot of {steps:,} steps", unit="s", values=tuple(plots), must=0.3)
    note = f"{statistics.median(frames):.0f} frames a second, least {min(frames):.0f}; must be 60"
    spans = tuple(1e3 / one for one in frames)
    yield Measure(
        what=f"a frame while an icicle of {boxes:,} boxes is zoomed", unit="ms", values=spans,
        must=17.0, note=note,
    )  # fmt: skip


def _first_view(page: Browser, served: Web) -> float:
    """Milliseconds from the link to the first process that is shown."""
    page.open("about:blank")
    page.wait_for("location.href === 'about:blank'")
    page.open(served.link)
    page.wait_for("window.firstSeen && location.href !== 'about:blank'")
    return float(page.evaluate("window.firstSeen"))


def _long_run(folder: Path, steps: int, boxes: int) -> str:
    """The run folder of a process that has ended after so many steps, the last of so many calls."""
    folder.mkdir()
    idle = start_program("idle", home=folder / "home", cwd=folder, PROBING="all")
    try:
        idle.wait_for_agent()
        found = idle.folder
    finally:
        idle.reap()
    writer = RingWriter(TABLES_BY_NAME["steps"], capacity=1 << steps.bit_length())
    for step in range(steps):
        took = 10_000_000 + step % 97 * 10_000
        writer.write(
            step=step, start_ns=step * took, duration_ns=took, loss=2.0, loss_finite=1,
            forward_s=0.004, backward_s=0.005, optimizer_s=0.001,
        )  # fmt: skip
    writer.save(found.ring("steps"))
    calls = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=1 << boxes.bit_length())
    for number in range(boxes):
        depth = number % 10
        calls.write(
            step=steps - 1, module=1 + depth, stage=0, **{"class": 11}, root=11, depth=depth,
            thread_id=1, start_ns=number // 10 * 10_000 + depth, recomputed=0, training=1,
            duration_ns=9_990 - 2 * depth, allocated_bytes=number,
        )  # fmt: skip
    calls.save(found.ring("torch_trace"))
    save_names(found.names, [*(f"block.{depth}" for depth in range(10)), "Block"])
    return str(found.path)


def _ranks(folder: Path, effort: float) -> Iterator[Measure]:
    """Of a page that is open on several ranks: processor time of a step, and what grows."""
    window_s = max(2.0, _WINDOW_S * min(1.0, effort))
    with (
        _training(folder / "ranks") as ranks,
        browser(folder / "ranks") as page,
        web(folder / "ranks" / "web", ranks[0].home) as served,
    ):
        page.open(served.link)
        page.wait_for(f"document.querySelectorAll('tr[data-endpoint]').length === {_RANKS}")
        used: dict[bool, list[_Used]] = {False: [], True: []}
        for number in range(2 * rounds_for(6, effort)):
            is_open = number % 4 in (1, 2)
            page.open(served.link if is_open else "about:blank")
            time.sleep(1.0)
            used[is_open].append(_used(ranks, window_s))
        page.open(served.link)
        heaps, sizes = _rounds(page, served, rounds_for(20, effort))
    yield Measure(
        what=f"processor time of a step, page open on {_RANKS} ranks", unit="%",
        values=slowdowns(*([one.per_step_ns for one in used[way]] for way in (True, False))),
        note="with what a browser on the same cores takes of their caches",
    )  # fmt: skip
    least = statistics.median(one.of_time for one in used[False])
    computed = statistics.median(one.of_main for one in used[True])
    yield Measure(
        what=f"threads of an agent, page open on {_RANKS} ranks, of the time that passes",
        unit="%", values=tuple(one.of_time - least for one in used[True]), must=0.5,
        note=f"more than the {least:.3f} % without a page; {computed:.2f} % of what the trainings"
        " themselves compute",
    )  # fmt: skip
    yield Measure(
        what="heap of the page, from the third round through all views to the last", unit="MiB",
        values=(heaps[-1] - heaps[min(2, len(heaps) - 1)],), must=2.0,
        note=f"{heaps[-1]:.1f} MiB after {len(heaps)} rounds",
    )  # fmt: skip
    yield Measure(
        what="server, resident, over the same rounds, at the least of three each", unit="MiB",
        values=(min(sizes[-3:]) - min(sizes[:3]),), must=20.0,
        note=f"{sizes[-1]:.0f} MiB at the end, {max(sizes):.0f} before it has given some back",
    )  # fmt: skip


@contextmanager
def _training(folder: Path) -> Iterator[list[Target]]:
    """Ranks of a job, each a small training by itself."""
    folder.mkdir()
    small = ["--layers", "2", "--dim", "64", "--context", "32", "--checkpoint-every", "0"]
    small += ["--workers", "0", "--pause", "0.3", "--threads", "1"]
    argv = [sys.executable, "-m", "probing._run", str(ROOT / "examples" / "train_gpt.py"), *small]
    with ExitStack() as stack:
        ranks = []
        for rank in range(_RANKS):
            own = {"PROBING": "1", "RANK": str(rank), "WORLD_SIZE": str(_RANKS)}
            target = Target(argv, folder / "home", folder, PROBING_JOB="page", **own)
            stack.callback(target.reap)
            ranks.append(target)
        for target in ranks:
            target.wait_for_step(10)
        yield ranks


class _Used(NamedTuple):
    """Processor time of ranks over a while; all threads but the main ones are the agents'.

    Attributes:
        per_step_ns: What all threads of all ranks have used for a step.
        of_time: What the agent of a rank has used of the time that has passed, in percent: by so
            much it can hold up a training whose main thread always computes.
        of_main: What the agents have used of what the main threads have, in percent.
    """

    per_step_ns: float
    of_time: float
    of_main: float


def _used(ranks: list[Target], window_s: float) -> _Used:
    began = time.monotonic_ns()
    before = [(process.processor_ns(one.pid), one.step()) for one in ranks]
    time.sleep(window_s)
    after = [(process.processor_ns(one.pid), one.step()) for one in ranks]
    passed = time.monotonic_ns() - began
    main = whole = steps = 0
    for target, (old, first), (new, last) in zip(ranks, before, after, strict=True):
        main += new[target.pid] - old[target.pid]
        whole += sum(new.values()) - sum(old.values())
        steps += last - first
    others = 100 * (whole - main)
    return _Used(whole / steps, others / passed / len(ranks), others / main)


def _rounds(page: Browser, served: Web, rounds: int) -> tuple[list[float], list[float]]:
    """What the page and its server hold, in MiB, after each round through all views."""
    page.wait_for("document.querySelector('tr[data-endpoint]')")
    of = page.evaluate("document.querySelector('header select option:nth-child(2)').value")
    heaps, sizes = [], []
    for _ in range(rounds):
        for view in ("steps", "step", "stacks", "memory", "model", "sql", "doctor", "act"):
            page.evaluate(f"location.hash = '#/{view}?of={quote(of, safe='')}'")
            page.wait_for("document.querySelector('section h2')")
            time.sleep(0.5)
        page.evaluate("location.hash = '#/'")
        page.wait_for("document.querySelector('tr[data-endpoint]')")
        page.call("HeapProfiler.collectGarbage")
        heaps.append(page.call("Runtime.getHeapUsage")["usedSize"] / 2**20)
        status = Path(f"/proc/{served.process.pid}/status").read_text()
        sizes.append(int(status.partition("VmRSS:")[2].split()[0]) / 1024)
    return heaps, sizes
