"""The trace that torch.profiler writes, read.

Rules of this file: what the JSON of a Chrome trace says and which step, which parent and which
module each event has; no figures. Times are nanoseconds on the trace's own clock.
"""

from __future__ import annotations

import bisect
import json
import re
from collections import Counter
from dataclasses import field
from itertools import pairwise
from typing import Any, NamedTuple

from ..errors import InternalError
from ..messages.frozen import dataclass
from ..script.profile_mark import MARK_PATTERN

_OPTIMIZER = re.compile(r"Optimizer\.step#(.+?)\.\w+$")
_ENGINE = "autograd::engine::evaluate_function: "
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_CALLS = ("_runtime", "_driver")
"""How the categories of calls end by which a program uses devices, such as `cuda_driver`."""
_NAME = re.compile(rb'(?<="name": ").{1,1000}(?=",?[ \t\r]*(?:"pid"|$))', re.MULTILINE)
"""What torch writes alone in a line, or before the process; a line full of names takes its time."""
_QUOTE = re.compile(rb'(?<!\\)"')
_LAUNCH = re.compile(r"Launch")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")


class Mark(NamedTuple):
    """Where a step begins.

    Attributes:
        start_ns: By the trace's clock.
        time_ns: Since the epoch, by the clock of python.torch_trace.
    """

    step: int
    start_ns: int
    time_ns: int
    thread_id: int = 0


class ModuleCall(NamedTuple):
    """A call of a module, as python.torch_trace has it; `start_ns` is since the epoch."""

    module: str
    thread_id: int
    start_ns: int
    duration_ns: int


@dataclass(slots=True, kw_only=True, eq=False)
class Event:
    """One event of the trace.

    Attributes:
        kind: ``op``, ``kernel``, ``annotation``, or ``launch``: a call by which the host may have
            had something launched.
        correlation: What a kernel has in common with the launch that it comes of.
        own_ns: Its time without that of the operators inside.
        is_double: Whether it is the only thing in an operator of the same name, as whose part it
            counts: torch has passed it on to the same operator of another kind of tensor.
        parent: The operator it is inside of.
        module: The module it works for; None where that is not known.
        stage: ``forward``, ``backward``, ``optimizer``, or ``replay`` of a CUDA graph; None outside
            of all of them.
    """

    name: str
    kind: str
    thread_id: int
    start_ns: int
    duration_ns: int
    external_id: int = 0
    correlation: int = 0
    own_ns: int = 0
    is_double: bool = False
    parent: Event | None = None
    module: str | None = None
    stage: str | None = None

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The events of the steps of a profile.

    Attributes:
        raw: The document as it was read.
        marks: One per step, and one at the end of the last; in order.
        ops: The operators within the steps, by thread and time.
        kernels: What the accelerator did for them.
        launches: Where the host had kernels and copies launched.
        delays_ns: By how much each kernel began after its launch, where that is known.
        annotations: Ranges that torch or the program names.
        modules: The module calls of these steps; empty where they are not known.
    """

    raw: dict[str, Any]
    marks: tuple[Mark, ...]
    ops: tuple[Event, ...]
    kernels: tuple[Event, ...]
    annotations: tuple[Event, ...]
    modules: tuple[Event, ...] = field(default=())
    launches: tuple[Event, ...] = ()
    delays_ns: tuple[int, ...] = ()


def read_trace(data: bytes, calls: tuple[ModuleCall, ...] = ()) -> Trace:
    """Read a trace, and find out what each event belongs to.

    Args:
        data: The JSON.
        calls: The module calls of the steps.

    Raises:
        InternalError: It is no trace of whole steps.
    """
    raw, events, found = _read(data)
    marks, shift_ns = _marks(found)
    if len(marks) < 2:
        raise InternalError("the profile has no whole step")
    low, high = marks[0].start_ns, marks[-1].start_ns
    inside = [event for event in found if low <= event.start_ns < high]
    ops = sorted((e for e in inside if e.kind == "op"), key=_by_time)
    notes = [e for e in inside if e.kind == "annotation" and not MARK_PATTERN.fullmatch(e.name)]
    _nest(ops)
    modules = _module_events(calls, shift_ns)
    _attribute_forward(ops, modules)
    _attribute_optimizers(ops, notes)
    _attribute_backward(ops, [e for e in events if e.get("cat") == "fwdbwd"])
    # A kernel runs after its launch; one of the last step may end behind it.
    all_launches = _launches(found)
    launches = [one for one in all_launches if low <= one.start_ns < high]
    _attribute_launches(launches, ops, modules, notes)
    launched = {one.correlation: one for one in all_launches if one.correlation}
    kernels = _attributed_kernels(found, ops, launched, (low, high))
    return Trace(
        raw=raw,
        marks=marks,
        ops=tuple([op for op in ops if not op.is_double]),
        kernels=tuple(sorted(kernels, key=_by_time)),
        annotations=tuple(sorted(notes, key=_by_time)),
        modules=tuple(modules),
        launches=tuple(launches),
        delays_ns=tuple(
            [
                kernel.start_ns - launched[kernel.correlation].start_ns
                for kernel in kernels
                if kernel.correlation in launched
            ]
        ),
    )


def _read(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]], list[Event]]:
    """The document, what in it may count, and the events that this makes."""
    try:
        raw = _document(data)
        events = [event for event in raw["traceEvents"] if event.get("ph") in ("X", "s", "f")]
        return raw, events, [made for event in events if (made := _event(event)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InternalError(f"the profile cannot be read ({error!r})") from None


def _document(data: bytes) -> dict[str, Any]:
    """The JSON of a trace, in which torch leaves quotation marks in names as they are."""
    try:
        raw: dict[str, Any] = json.loads(data)
    except ValueError:
        raw = json.loads(_NAME.sub(lambda name: _QUOTE.sub(rb'\\"', name[0]), data), strict=False)
    return raw


def _launches(found: list[Event]) -> list[Event]:
    """The calls that had something launched, by thread and time.

    They are known by what they launched, whatever they are called: copies have other names than
    kernels, and libraries call the driver past the runtime. A call inside of another one that has
    launched the same is none of its own.
    """
    done = {event.correlation for event in found if event.kind == "kernel"}
    seen: set[int] = set()
    launches = []
    for event in sorted((one for one in found if one.kind == "launch"), key=_by_time):
        is_one = event.correlation in done or _LAUNCH.search(event.name) is not None
        if is_one and event.correlation not in seen:
            launches.append(event)
        seen |= {event.correlation} - {0}
    return launches


def _attributed_kernels(
    found: list[Event], ops: list[Event], launched: dict[int, Event], within_ns: tuple[int, int]
) -> list[Event]:
    """The kernels of operators, of launches, or of the time of the steps, and for whom they are."""
    by_id = {op.external_id: op for op in ops if op.external_id}
    low, high = within_ns
    within = {number for number, one in launched.items() if low <= one.start_ns < high}
    kernels = [
        event
        for event in found
        if event.kind == "kernel"
        and (
            event.external_id in by_id
            or event.correlation in within
            or low <= event.start_ns < high
        )
    ]
    for kernel in kernels:
        _attribute_kernel(kernel, by_id.get(kernel.external_id), launched.get(kernel.correlation))
    return kernels


def step_at(trace: Trace, start_ns: int) -> int:
    """The step that a moment of the trace belongs to."""
    place = bisect.bisect_right(trace.marks, start_ns, key=lambda mark: mark.start_ns) - 1
    return trace.marks[min(max(place, 0), len(trace.marks) - 2)].step


def _event(raw: dict[str, Any]) -> Event | None:
    """One event, if it is of a kind that counts."""
    category = str(raw.get("cat"))
    kind = "kernel" if category in _DEVICE else _KINDS.get(category)
    if kind is None and category.endswith(_CALLS):
        kind = "launch"
    if kind is None or raw["ph"] != "X":
        return None
    args = raw.get("args", {})
    thread = raw.get("tid", 0)
    return Event(
        name=str(raw["name"]),
        kind=kind,
        thread_id=thread if isinstance(thread, int) else 0,
        start_ns=round(raw["ts"] * 1000),
        duration_ns=round(raw.get("dur", 0) * 1000),
        external_id=int(args.get("External id", 0) or 0),
        correlation=int(args.get("correlation", 0) or 0),
    )


_KINDS = {
    "cpu_op": "op",
    "user_annotation": "annotation",
}


def _by_time(event: Event) -> tuple[int, int, int]:
    """Outer events first."""
    return (event.thread_id, event.start_ns, -event.duration_ns)


def _marks(events: list[Event]) -> tuple[tuple[Mark, ...], int]:
    """The first mark of each step, and what leads from the ring's clock to that of the trace.

    A mark begins after its time was taken and has ended before the next one's was: each narrows
    down how far the clocks are apart.
    """
    found = [
        (event, int(match[1]), int(match[2]), int(match[3]))
        for event in sorted(events, key=lambda event: event.start_ns)
        if (match := MARK_PATTERN.fullmatch(event.name)) is not None
    ]
    steps: dict[int, Mark] = {}
    for event, step, time_ns, _ in found:
        steps.setdefault(step, Mark(step, event.start_ns, time_ns, event.thread_id))
    most = min((event.start_ns - time_ns for event, _, time_ns, _ in found), default=0)
    ends = [(made[0].end_ns, after[3]) for made, after in pairwise(found)]
    least = max((end_ns - ended_ns for end_ns, ended_ns in ends), default=most)
    return tuple(steps.values()), (most + least) // 2


def _nest(ops: list[Event]) -> None:
    """Find each operator's parent, and the time that is its own."""
    inside: list[Event] = []
    children: Counter[int] = Counter()
    for op in ops:
        while inside and (inside[-1].thread_id != op.thread_id or inside[-1].end_ns <= op.start_ns):
            inside.pop()
        op.own_ns = op.duration_ns
        if inside:
            op.parent = inside[-1]
            op.parent.own_ns = max(0, op.parent.own_ns - op.duration_ns)
            children[id(op.parent)] += 1
        inside.append(op)
    for op in reversed(ops):  # children before their parents
        if op.parent is not None and op.parent.name == op.name and children[id(op.parent)] == 1:
            op.parent.own_ns += op.own_ns
            op.own_ns, op.is_double = 0, True


def _module_events(calls: tuple[ModuleCall, ...], shift_ns: int) -> list[Event]:
    """The module calls by the trace's clock."""
    events = [
        Event(
            name=call.module,
            kind="module",
            thread_id=call.thread_id,
            start_ns=call.start_ns + shift_ns,
            duration_ns=call.duration_ns,
        )
        for call in calls
    ]
    return sorted(events, key=_by_time)


def _attribute_forward(ops: list[Event], modules: list[Event]) -> None:
    """Give each operator the innermost module call that it began in."""
    for op, module in innermost(ops, modules):
        op.module, op.stage = module.name, "forward"


def _attribute_launches(
    launches: list[Event], ops: list[Event], modules: list[Event], notes: list[Event]
) -> None:
    """Give each launch what it lies inside of: kernels that no operator is named of go by it."""
    _attribute_forward(launches, modules)
    _attribute_optimizers(launches, notes)
    for launch, op in innermost(launches, ops):
        launch.parent, launch.module, launch.stage = op, op.module, op.stage
    for launch in launches:
        if _GRAPH_LAUNCH.search(launch.name):
            launch.module, launch.stage = None, "replay"


def _attribute_kernel(kernel: Event, op: Event | None, launch: Event | None) -> None:
    """Give a kernel what launched it: an operator by the profiler's word, else by its launch."""
    kernel.own_ns = kernel.duration_ns
    kernel.parent = op if op is not None or launch is None else launch.parent
    source = launch if launch is not None and (op is None or launch.stage == "replay") else op
    if source is not None:
        kernel.module, kernel.stage = source.module, source.stage


def _attribute_optimizers(ops: list[Event], annotations: list[Event]) -> None:
    """Operators inside of an optimizer's step are the optimizer's."""
    named = [note for note in annotations if _OPTIMIZER.match(note.name)]
    for op, note in innermost(ops, sorted(named, key=_by_time)):
        match = _OPTIMIZER.match(note.name)
        op.module, op.stage = match[1] if match else None, "optimizer"


def innermost(ops: list[Event], ranges: list[Event]) -> list[tuple[Event, Event]]:
    """Each operator with the innermost range of its thread around its beginning.

    Both are sorted by thread and time; operators outside of all ranges are left out.
    """
    found: list[tuple[Event, Event]] = []
    around: list[Event] = []
    following = iter(ranges)
    upcoming = next(following, None)
    for op in ops:
        place = (op.thread_id, op.start_ns)
        while upcoming is not None and (upcoming.thread_id, upcoming.start_ns) <= place:
            while around and not _reaches(around[-1], upcoming):
                around.pop()
            around.append(upcoming)
            upcoming = next(following, None)
        while around and not _reaches(around[-1], op):
            around.pop()
        if around:
            found.append((op, around[-1]))
    return found


def _reaches(outer: Event, event: Event) -> bool:
    """Whether a range is still open where an event of its thread begins."""
    return outer.thread_id == event.thread_id and outer.end_ns > event.start_ns


def _attribute_backward(ops: list[Event], links: list[dict[str, Any]]) -> None:
    """Give what the backward pass does the module of the forward operator it belongs to."""
    begins = {(op.thread_id, op.start_ns): op for op in ops}
    ends: dict[str, dict[int, tuple[int, int]]] = {"s": {}, "f": {}}
    for link in links:
        ends[link["ph"]][link["id"]] = (link["tid"], round(link["ts"] * 1000))
    for number, place in ends["f"].items():
        backward = begins.get(place)
        forward = begins.get(ends["s"].get(number, (0, 0)))
        if backward is None or forward is None:
            continue
        for op in (backward.parent, backward):
            if op is not None and op.name.startswith((_ENGINE, backward.name)):
                op.stage, op.module = "backward", forward.module
    for op in ops:  # parents stand before their children
        if op.name.startswith(_ENGINE):
            op.stage = "backward"
        elif op.parent is not None and op.parent.stage == "backward":
            op.stage, op.module = "backward", op.module or op.parent.module
