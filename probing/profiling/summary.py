"""The figures of a profile.

Rules of this file: pure functions of a `Trace`. No time is counted twice: an operator's is what
remains without the operators inside of it, and kernels are kept apart from the operators that
launch them. Shares are of the accelerator's time where there is one, else of the operators'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Literal, TypeVar

from ..messages.common import LiveRows
from ..messages.frozen import dataclass
from ..tables import KERNEL_CATEGORIES, KERNELS
from .categories import category_of
from .trace import Event, Trace, innermost, step_at

K = TypeVar("K")

_GAPS = 10
_MODULE_KERNELS = 100
_ENGINE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """One step of the profile."""

    step: int
    start_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """All calls of one operator or kernel.

    Attributes:
        self_cpu_ns: None for a kernel.
        self_device_ns: None for an operator.
        share: Of all of its kind.
    """

    name: str
    kind: Literal["operator", "kernel"]
    category: str
    calls: int
    self_cpu_ns: int | None
    self_device_ns: int | None
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """All work of one kind, kernels where there are any, else operators."""

    category: str
    calls: int
    time_ns: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTime:
    """What one module's own operators, or their kernels, took.

    Attributes:
        module: None for what no module is known of.
        stage: ``forward``, ``backward``, ``optimizer``, or ``replay`` of a CUDA graph; None outside
            of all of them.
    """

    module: str | None
    stage: str | None
    calls: int
    time_ns: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleKernel:
    """All calls of one kernel that one module has launched in one stage; as `ModuleTime`."""

    module: str | None
    stage: str | None
    name: str
    calls: int
    time_ns: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """How the queues of a device ran beside each other.

    Attributes:
        several_ns: In which more than one thing ran.
        communication_ns: In which kernels of collectives ran.
        exposed_ns: In which nothing else ran beside those.
        launches: How often the host had something launched.
        delay_ns: By how much a kernel began after its launch, in the middle; None where unknown.
    """

    several_ns: int
    communication_ns: int
    exposed_ns: int
    launches: int
    delay_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time in which nothing ran.

    Attributes:
        before: What ended where it began; None at the beginning of the profile.
        after: What began where it ended; None at the end.
        inside: The range or module that the program was in the midst of, if one is known.
    """

    step: int
    start_ns: int
    duration_ns: int
    before: str | None
    after: str | None
    inside: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """What the training thread has spent on one phase of the steps."""

    phase: str
    time_ns: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What some steps were spent on.

    Attributes:
        on: Whether times are the accelerator's or the operators' on the CPU.
        start_ns: When it began, since the epoch.
        wall_ns: From the beginning of the first step to the end of the last.
        busy_ns: How much of it anything ran; the rest is gaps.
        kernels: The most expensive first, kernels before operators.
        modules: The most expensive first; empty where no module calls were recorded.
        gaps: The longest first, as many as are kept.
        gap_count: How many there are in all.
        phases: What the training thread has spent these steps on, the longest first, as in
            python.steps; empty where that is not on record.
        module_kernels: The most expensive first, as many as are kept; empty without kernels.
        queues: None without kernels.
    """

    on: Literal["device", "cpu"]
    start_ns: int
    wall_ns: int
    busy_ns: int
    steps: tuple[StepSpan, ...]
    kernels: tuple[Kernel, ...]
    categories: tuple[Category, ...]
    modules: tuple[ModuleTime, ...]
    gaps: tuple[Gap, ...]
    gap_count: int
    phases: tuple[PhaseTime, ...] = ()
    module_kernels: tuple[ModuleKernel, ...] = ()
    queues: Queues | None = None


def summarize(trace: Trace) -> Profile:
    """The figures of a trace."""
    marks, counted = trace.marks, trace.kernels or trace.ops
    busy_ns, gaps = _gaps(trace, counted)
    gaps.sort(key=lambda gap: -gap.duration_ns)
    return Profile(
        on="device" if trace.kernels else "cpu",
        start_ns=marks[0].time_ns,
        wall_ns=marks[-1].start_ns - marks[0].start_ns,
        busy_ns=busy_ns,
        steps=tuple(
            [
                StepSpan(step=a.step, start_ns=a.time_ns, duration_ns=b.start_ns - a.start_ns)
                for a, b in pairwise(marks)
            ]
        ),
        kernels=(*_kernels(trace.kernels, "kernel"), *_kernels(trace.ops, "operator")),
        categories=_categories(counted),
        modules=_modules(counted) if trace.modules else (),
        gaps=tuple(gaps[:_GAPS]),
        gap_count=len(gaps),
        module_kernels=_module_kernels(trace.kernels),
        queues=_queues(trace) if trace.kernels else None,
    )


def phase_times(times_s: Mapping[str, float | None]) -> tuple[PhaseTime, ...]:
    """The phases of some steps, the longest first.

    Args:
        times_s: By phase, what all of the steps have taken for it.
    """
    known = {phase: round(seconds * 1e9) for phase, seconds in times_s.items() if seconds}
    total = sum(known.values())
    found = [PhaseTime(phase=p, time_ns=t, share=_share(t, total)) for p, t in known.items()]
    return tuple(sorted(found, key=lambda each: -each.time_ns))


def kernel_rows(profile: Profile | None) -> LiveRows:
    """The rows of python.kernels; none where nothing has been profiled."""
    rows = []
    if profile is not None:
        first, last = profile.steps[0].step, profile.steps[-1].step
        rows = [
            (
                k.name, k.kind, k.category, k.calls, k.self_cpu_ns, k.self_device_ns, k.share,
                first, last, profile.start_ns,
            )
            for k in profile.kernels
        ]  # fmt: skip
    return LiveRows.of(KERNELS, rows)


def short_name(name: str) -> str:
    """A name without what torch puts before that of a backward function."""
    return name.removeprefix(_ENGINE)


def _kernels(events: Iterable[Event], kind: Literal["operator", "kernel"]) -> list[Kernel]:
    """One record per name."""
    found = [
        Kernel(
            name=name,
            kind=kind,
            category=category_of(name),
            calls=calls,
            self_cpu_ns=time_ns if kind == "operator" else None,
            self_device_ns=time_ns if kind == "kernel" else None,
            share=share,
        )
        for name, calls, time_ns, share in _totals(events, lambda event: event.name)
    ]
    return sorted(found, key=lambda kernel: (-kernel.share, kernel.name))


def _categories(events: Iterable[Event]) -> tuple[Category, ...]:
    """One record per category that occurs, the most expensive first."""
    found = [
        Category(category=name, calls=calls, time_ns=time_ns, share=share)
        for name, calls, time_ns, share in _totals(events, lambda event: category_of(event.name))
    ]
    order = KERNEL_CATEGORIES.index
    return tuple(sorted(found, key=lambda each: (-each.time_ns, order(each.category))))


def _modules(events: Iterable[Event]) -> tuple[ModuleTime, ...]:
    """One record per module and stage."""
    totals = _totals(events, lambda event: (event.module, event.stage))
    return tuple(
        [
            ModuleTime(module=module, stage=stage, calls=calls, time_ns=time_ns, share=share)
            for (module, stage), calls, time_ns, share in totals
        ]
    )


def _module_kernels(kernels: Iterable[Event]) -> tuple[ModuleKernel, ...]:
    """One record per module, stage and name."""
    totals = _totals(kernels, lambda event: (event.module, event.stage, event.name))
    return tuple(
        [
            ModuleKernel(
                module=module, stage=stage, name=name, calls=calls, time_ns=time_ns, share=share
            )
            for (module, stage, name), calls, time_ns, share in totals[:_MODULE_KERNELS]
        ]
    )


def _totals(events: Iterable[Event], key: Callable[[Event], K]) -> list[tuple[K, int, int, float]]:
    """By key the calls, their own time and its share of all; the most expensive first."""
    times: dict[K, list[int]] = defaultdict(list)
    for event in events:
        times[key(event)].append(event.own_ns)
    total = sum(map(sum, times.values()))
    found = [(k, len(own), sum(own), _share(sum(own), total)) for k, own in times.items()]
    return sorted(found, key=lambda each: -each[2])


def _queues(trace: Trace) -> Queues:
    """How much ran at once, moment by moment."""
    first, last = trace.marks[0].start_ns, trace.marks[-1].start_ns
    changes: list[tuple[int, int, bool]] = []
    for event in trace.kernels:
        start, end = max(event.start_ns, first), min(event.end_ns, last)
        if end > start:
            is_communication = category_of(event.name) == "communication"
            changes += [(start, 1, is_communication), (end, -1, is_communication)]
    running = {True: 0, False: 0}
    several_ns = communication_ns = exposed_ns = before_ns = 0
    for now_ns, change, is_communication in sorted(changes):
        spent_ns = now_ns - before_ns
        several_ns += spent_ns * (running[True] + running[False] > 1)
        communication_ns += spent_ns * (running[True] > 0)
        exposed_ns += spent_ns * (running[True] > 0 and not running[False])
        running[is_communication] += change
        before_ns = now_ns
    return Queues(
        several_ns=several_ns,
        communication_ns=communication_ns,
        exposed_ns=exposed_ns,
        launches=len(trace.launches),
        delay_ns=round(median(trace.delays_ns)) if trace.delays_ns else None,
    )


def _gaps(trace: Trace, events: Iterable[Event]) -> tuple[int, list[Gap]]:
    """How long anything ran, and the times in which nothing did."""
    first, last = trace.marks[0].start_ns, trace.marks[-1].start_ns
    thread_id, reached, busy = trace.marks[0].thread_id, first, 0
    before: Event | None = None
    holes: list[tuple[Event, Event | None, Event | None]] = []
    for event in sorted(events, key=lambda event: event.start_ns):
        start, end = min(event.start_ns, last), min(event.end_ns, last)
        if start > reached:
            holes.append((_hole(thread_id, reached, start), before, event))
        busy += max(0, end - max(start, reached))
        if end > reached:
            reached, before = end, event
    if last > reached:
        holes.append((_hole(thread_id, reached, last), before, None))
    ranges = sorted(
        (*trace.annotations, *trace.modules),
        key=lambda e: (e.thread_id, e.start_ns, -e.duration_ns),
    )
    around = {id(hole): at.name for hole, at in innermost([hole for hole, _, _ in holes], ranges)}
    return busy, [
        Gap(
            step=step_at(trace, _start(hole)),
            start_ns=_start(hole) - first + trace.marks[0].time_ns,
            duration_ns=hole.duration_ns,
            before=_outermost(before),
            after=_outermost(after),
            inside=around.get(id(hole)),
        )
        for hole, before, after in holes
    ]


def _hole(thread_id: int, start_ns: int, end_ns: int) -> Event:
    """A gap as an event, looked at in its middle: ranges begin and end at the edges of gaps."""
    middle = (start_ns + end_ns) // 2
    return Event(
        name="", kind="gap", thread_id=thread_id, start_ns=middle, duration_ns=end_ns - start_ns
    )


def _start(hole: Event) -> int:
    """Where a gap began."""
    return hole.start_ns - hole.duration_ns // 2


def _outermost(event: Event | None) -> str | None:
    """The name that a person looks for: of an operator, the one that the program called."""
    while event is not None and event.kind == "op" and event.parent is not None:
        event = event.parent
    return None if event is None else short_name(event.name)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
