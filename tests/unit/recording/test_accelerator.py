"""The seam for accelerators, on a made-up CUDA that refuses what CUDA refuses."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.torch_version import TorchVersion  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from probing.agent.eval.run import Code, Moment, Run, Shared  # noqa: E402
from probing.agent.recording.safe_points import SafePoints  # noqa: E402
from probing.agent.sources.accelerator import (  # noqa: E402
    Accelerator,
    captures,
    device_kind,
    device_names,
    graph_class,
    is_capturing,
    profiler_activity,
)
from probing.agent.sources.accelerator.owned import Owned  # noqa: E402
from probing.ring.format import NULL_FLOAT  # noqa: E402
from probing.settings import Settings  # noqa: E402
from tests.harness.accelerators import NoAccelerator  # noqa: E402
from tests.harness.fake_cuda import TOTAL, FakeCuda, FakeError  # noqa: E402
from tests.harness.fake_torch import FOREVER, installed  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    """A made-up CUDA whose second device the training uses, while every thread begins with one."""
    with installed(FakeCuda(devices=2, home=1)) as fake:
        fake.start()
        yield fake


def elsewhere(action: Callable[[], Any]) -> Any:
    """What a function gives in another thread."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(action()))
    thread.start()
    thread.join()
    return found[0]


def capture(*, device: int = 1) -> Any:
    """A graph whose capture has begun, on a queue of its own."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.Stream(torch.device("cuda", device)).__enter__()
    captures.begins(graph)
    graph.capture_begin()
    return graph


def end(graph: Any) -> None:
    """End it; an error if anybody has broken it."""
    graph.capture_end()
    captures.ended(graph)


def test_a_stand_in_answers_all_that_is_asked() -> None:
    """So what is tested with one meets no device, and needs no torch."""
    asked = {name for name in vars(Accelerator) if not name.startswith("_")}
    assert len(asked) > 15
    assert asked <= vars(NoAccelerator).keys()


def test_a_number_is_waited_for_on_its_own_device(cuda: FakeCuda) -> None:
    """The current device has nothing to do: what it says says nothing of the other."""
    seam: Any = Accelerator()
    cuda.work(5.0)
    number = seam.copy_number(torch.tensor(3.5))
    assert not number.is_here()
    cuda.advance(6.0)
    assert number.is_here()
    assert number.value() == 3.5
    assert cuda.contexts == {1}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_of_each_kind_come_without_a_wait(dtype: str, cuda: FakeCuda) -> None:
    """A copy that had to change the type would wait for the device."""
    number = Accelerator().copy_number(torch.tensor(1.5, dtype=getattr(torch, dtype)))
    assert number is not None
    assert number.is_here()
    assert number.value() == 1.5
    assert cuda.waits() == []


def test_a_place_holds_what_it_is_used_for(cuda: FakeCuda) -> None:
    """One number and two halves of its size have the same places, in turn."""
    seam: Any = Accelerator()
    for _ in range(3 * 512):
        one = seam.copy_number(torch.tensor(1.5))
        assert one.value() == 1.5
        two = seam.copy_numbers(torch.tensor([2.5, 3.5]))
        assert two.values() == [2.5, 3.5]
        del one, two
    assert cuda.calls("host_alloc") == 1


def test_a_loss_that_requires_gradients_keeps_no_graph(cuda: FakeCuda) -> None:
    """What is brought of it is a number, whether gradients are on or not."""
    seam: Any = Accelerator()
    for dtype in (torch.float32, torch.float64):
        weight = torch.tensor(2.0, dtype=dtype, requires_grad=True)
        number = seam.copy_number(weight * 3)
        assert number.value() == 6.0
        assert not number._seen.requires_grad
        assert number._seen.grad_fn is None
    assert cuda.waits() == []


def test_numbers_share_memory_that_is_taken_once(cuda: FakeCuda) -> None:
    """Of 4200 numbers on their way 4096 have a place; the others are counted, and not wrong."""
    seam: Any = Accelerator()
    cuda.work(1.0)
    sent = [seam.copy_number(torch.tensor(float(n))) for n in range(4200)]
    assert [number is not None for number in sent] == [True] * 4096 + [False] * 104
    assert (cuda.calls("host_alloc"), seam.missed) == (1, 104)
    cuda.finish()
    here = [number.value() for number in sent if number is not None]
    assert here == list(map(float, range(4096)))
    sent.clear()
    again = seam.copy_number(torch.tensor(7.0))
    assert again is not None
    assert again.is_here()
    assert again.value() == 7.0
    assert (cuda.calls("host_alloc"), seam.missed) == (1, 104)


def test_a_device_that_is_hardly_late_has_few_places_made(cuda: FakeCuda) -> None:
    """Torch's objects for all of them would take megabytes."""
    seam: Any = Accelerator()
    for number in range(2000):
        cuda.work(0.001)
        sent = [seam.copy_number(torch.tensor(float(number)))]
        cuda.advance(0.001)
    assert sent[0].value() == 1999.0
    places, pieces = seam._pinned[1]._single
    assert (len(places), len(pieces)) == (511, 7)


def test_a_place_is_not_used_again_before_the_device_has_written_there(cuda: FakeCuda) -> None:
    """Though nobody wants the number any more."""
    seam: Any = Accelerator()
    cuda.work(1.0)
    for n in range(4096):
        seam.copy_number(torch.tensor(float(n)))  # and let go of at once
    assert seam.copy_number(torch.tensor(1.0)) is None
    cuda.finish()
    assert seam.copy_number(torch.tensor(1.0)) is not None


def test_without_marks_no_place_is_lost(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where all are in use by modules that are timed: numbers come again once there are some."""
    seam: Any = Accelerator()
    monkeypatch.setattr("probing.agent.sources.accelerator.marks._MOST", 3)
    first = seam.copy_number(torch.tensor(1.0))
    held = [seam.mark() for _ in range(2)]
    assert [seam.copy_number(torch.tensor(1.0)) for _ in range(5000)] == [None] * 5000
    assert seam.missed == 5000
    held.clear()
    number = seam.copy_number(torch.tensor(2.5))
    assert (first.value(), number.value(), seam.missed) == (1.0, 2.5, 5000)


def test_memory_of_an_earlier_agent_is_used_as_it_is(cuda: FakeCuda) -> None:
    """One of an older version has left fewer places, and nothing to make more of."""
    seam: Any = Accelerator()
    assert seam.copy_number(torch.tensor(1.0)) is not None
    single = seam._pinned[1]._single
    del single[1:]
    cuda.work(1.0)
    sent = [seam.copy_number(torch.tensor(float(n))) for n in range(600)]
    assert [number is not None for number in sent] == [True] * 512 + [False] * 88


def test_a_mark_is_set_where_the_training_computes(cuda: FakeCuda) -> None:
    """Where that is not known yet, there is none, and no context of a device that is not used."""
    seam: Any = Accelerator()
    assert seam.mark() is None
    seam.meet(torch.device("cuda", 1))
    mark = seam.mark()
    assert mark is not None
    assert mark.lane.device == 1
    assert cuda.contexts == {1}


def test_marks_of_two_devices_do_not_meet(cuda: FakeCuda) -> None:
    """Threads with devices of their own get events of these, used again or not."""
    seam: Any = Accelerator()
    cuda.contexts.add(0)

    def on_second() -> Any:
        torch.cuda.set_device(1)
        return seam.mark()

    for _ in range(3):
        first, second = seam.mark(), elsewhere(on_second)
        assert (first.lane.device, second.lane.device) == (0, 1)
        assert seam.between(first, second) is None
        del first, second
    assert cuda.calls("event_create") == 2
    assert seam.notes() == []


def test_times_across_queues_wait_for_both_marks(cuda: FakeCuda) -> None:
    """The last of two marks may be reached before the first, which lies in a busy queue."""
    seam: Any = Accelerator()
    seam.meet(torch.device("cuda", 1))
    with torch.cuda.Stream(torch.device("cuda", 1)):
        cuda.work(2.0)
        first = seam.mark()
    last = seam.mark()
    took = seam.between(first, last)
    assert took is not None
    assert last.is_here()
    assert not took.is_here()
    assert took.value() is NULL_FLOAT, "asked too early, it is not known"
    cuda.advance(3.0)
    assert took.is_here()
    assert took.value() == pytest.approx(-2.0)


def test_what_lies_before_a_mark_that_was_reached_is_not_asked(cuda: FakeCuda) -> None:
    """A hundred marks cost one question."""
    seam: Any = Accelerator()
    seam.meet(torch.device("cuda", 1))
    marks = [seam.mark() for _ in range(100)]
    asked = cuda.calls("event_query")
    assert marks[-1].is_here()
    assert all(mark.is_here() for mark in marks)
    assert cuda.calls("event_query") == asked + 1


def test_nothing_is_asked_in_a_capture_of_whichever_thread(cuda: FakeCuda) -> None:
    """In torch's usual mode the question of another thread would break it as well."""
    seam: Any = Accelerator()
    seam.meet(torch.device("cuda", 1))
    number, mark = seam.copy_number(torch.tensor(2.0)), seam.mark()
    graph = capture()

    def ask() -> list[Any]:
        told: list[Any] = [number.is_here(), mark.is_here()] if number and mark else []
        copied = [seam.copy_number(torch.tensor(1.0)), seam.mark(), seam.empty_cache()]
        return [*told, is_capturing(), *copied, seam.allocated_bytes(), seam.segments()]

    expected: list[Any] = [False, False, True, None, None, False, 1 << 20, cuda.segments()]
    assert ask() == elsewhere(ask) == expected
    with captures.quiet() as may_ask:
        assert not may_ask
    end(graph)
    assert {entry.name for entry in cuda.in_captures()} <= {"snapshot"}, "which asks no device"
    assert number is not None
    assert number.is_here()
    assert not is_capturing()


def test_what_is_looked_for_is_not_read_in_a_capture(cuda: FakeCuda) -> None:
    """Labels and norms that somebody has asked for wait until it is over."""
    from probing.agent.sources.data.labels import _Look
    from probing.agent.sources.numbers.nonfinite.bad_weights import have_finite_norms

    training: Any = SimpleNamespace(step=lambda: 0)
    labels, bad = _Look(training), torch.full((2, 3), torch.nan)
    batch = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "labels": torch.ones(2, 3).long()}
    graph = capture()
    labels.batch_came(batch)
    assert have_finite_norms([bad]) == [True]
    assert not cuda.is_broken
    end(graph)
    assert cuda.in_captures() == []
    labels.batch_came(batch)
    assert labels.came.is_set()
    assert labels.pair is not None
    assert have_finite_norms([bad]) == [False]


def test_a_check_has_the_devices_in_use_compute(cuda: FakeCuda) -> None:
    """In a queue of its own, without a wait; no other device is begun to be used."""
    seam: Any = Accelerator()
    seam.meet(torch.device("cuda", 1))
    cuda.work(FOREVER)  # in the training's queue
    other, own = elsewhere(seam.check_devices)
    assert other == ("cuda:0", None, None, "this process does not use it")
    assert (own.device, own.ok, own.error) == ("cuda:1", True, None)
    assert own.seconds > 0
    assert (cuda.waits(), cuda.contexts) == ([], {1})
    cuda.is_faulty = True
    wrong = seam.check_devices()[1]
    assert (wrong.ok, wrong.error) == (False, "it computes wrongly: integers do not add up")
    cuda.is_faulty = False
    cuda.timeline(1, 1).push(FOREVER)
    late = seam.check_devices()[1]
    assert (late.ok, late.seconds) == (None, None)
    assert "hangs" in late.error


def test_a_check_takes_no_piece_for_which_the_allocator_keeps_much(cuda: FakeCuda) -> None:
    """A MiB at most each, sums included: of 32 bits torch would first make a copy of twice that."""
    seen = _Seen()
    with seen:
        assert Accelerator().check_devices()[1].ok
    assert seen.sizes
    assert max(seen.sizes) <= 1 << 20
    assert seen.summed == [torch.int64]


class _Seen(TorchDispatchMode):
    """The sizes of all tensors made, and of what kind those are that are summed."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.summed: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take note of a call."""
        if "sum" in str(func):
            self.summed.append(args[0].dtype)
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.sizes.append(made.nbytes)
        return made


@pytest.mark.parametrize(("version", "used"), [("2.11.0+cu130", None), ("2.13.0+cu130", 4096)])
def test_what_is_in_use_of_pinned_memory_is_told_where_torch_counts_it(
    version: str, used: int | None, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 2.13 torch does not count what is given back: more than there is would be in use."""
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    cuda.forgets_frees = used is None
    kept = cuda.pin(4096)
    for _ in range(50):
        cuda.pin(1 << 20)  # a batch, which is let go of
    told = torch.cuda.host_memory_stats_as_nested_dict()
    size = 4096 + (1 << 20)
    assert told["allocated_bytes"]["current"] == size
    assert (told["active_bytes"]["current"] > size) == cuda.forgets_frees
    assert Accelerator().pinned_memory() == (size, used, 2)
    del kept


def test_a_check_tries_nothing_in_a_capture_or_where_memory_is_short(cuda: FakeCuda) -> None:
    """What it cannot do without harm it says that it has not done."""
    seam: Any = Accelerator()
    seam.meet(torch.device("cuda", 1))
    graph = capture()
    asked = seam.check_devices()[1]
    end(graph)
    assert (asked.ok, asked.error) == (None, "a graph is being captured: ask again")
    assert cuda.in_captures() == []
    cuda.reserved = TOTAL - (1 << 20)
    short = seam.check_devices()[1]
    assert (short.ok, short.error) == (None, "less than 64 MiB are free: nothing was tried")
    assert cuda.calls("host_alloc") == 0


def test_a_thread_of_the_agent_tells_of_the_trainings_device(cuda: FakeCuda) -> None:
    """Each thread begins with the first device, where this process has nothing."""
    seam: Any = Accelerator()
    seam.meet(torch.device("cuda", 1))
    figures = elsewhere(seam.memory_figures)
    assert (figures.device, figures.allocated_bytes) == ("cuda:1", cuda.allocated)
    elsewhere(seam.use_device)
    assert cuda.contexts == {1}


def test_code_that_is_sent_runs_on_the_trainings_device(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``device="cuda"`` means what it means in the script; where it is refused, the code runs."""
    seam: Any = Accelerator()
    seam.meet(torch.device("cuda", 1))
    training: Any = SimpleNamespace(
        safe_points=SafePoints(), thread_id=int, step=int, names=dict, use_device=seam.use_device
    )
    run = Run(Code("import torch; torch.cuda.current_device()"), training, Shared(Settings()))
    moment = Moment("agent thread", 0.0, 60.0, 60.0)
    assert elsewhere(lambda: run.execute(moment)).value == "1"
    assert cuda.contexts == {1}

    def refuse(device: int) -> None:
        raise FakeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    assert elsewhere(lambda: run.execute(moment)).value == "0"
    assert "illegal memory access" in seam.notes()[0]


def test_devices_that_hold_memory_are_named(cuda: FakeCuda) -> None:
    """Whichever device the asking thread would use; nobody else's is named."""
    torch.ones(4, device="cuda:1")
    assert elsewhere(device_names) == "NVIDIA H200 (fake 1)"
    cuda.allocator = "pluggable"
    assert elsewhere(device_names) == "NVIDIA H200 (fake 0), NVIDIA H200 (fake 1)"


@pytest.mark.parametrize("name", ["cudaMallocAsync", "pluggable"])
def test_an_allocator_that_tells_little_is_noted(name: str, cuda: FakeCuda) -> None:
    """What torch refuses is None, and a sentence; nothing raises."""
    cuda.allocator = name
    seam: Any = Accelerator()
    seam.meet(torch.device("cuda", 1))
    assert seam.watch_out_of_memory(lambda *_: None)
    assert seam.segments() is None
    has_figures = name == "cudaMallocAsync"
    assert (seam.memory_figures() is not None) is has_figures
    assert (seam.allocated_bytes() is not None) is has_figures
    assert (seam.allocator_bytes(1) != (None, None)) is has_figures
    assert all("does not yet support" in note for note in seam.notes())
    assert len(seam.notes()) == (2 if has_figures else 5)


def test_no_history_is_taken_along_with_the_segments(cuda: FakeCuda) -> None:
    """It may be long, and nobody else in the process runs while it is made."""
    assert Accelerator().segments() == cuda.segments()
    assert [entry.name for entry in cuda.log] == ["snapshot"]


def test_an_owner_outlives_its_last_reference() -> None:
    """A child that is forked would else destroy it; only `release` lets it go."""
    owned, thing = Owned(), object()
    kept = owned._objects
    owned.keep(thing)
    assert len(owned) == 1
    owned.release(thing)
    assert kept == {}


@pytest.fixture
def xpu() -> Iterator[FakeCuda]:
    """A made-up torch for XPU, which has the second device in use."""
    with installed(FakeCuda(devices=2, home=1, kind="xpu")) as fake:
        fake.start()
        yield fake


def test_xpu_is_asked_as_cuda_is(xpu: FakeCuda) -> None:
    """Numbers, marks and times come without a wait, and no other device is begun to be used."""
    seam: Any = Accelerator()
    assert seam.mark() is None, "whose device is not known yet, and contexts do not tell"
    seam.meet(torch.device("xpu", 1))
    first, number = seam.mark(), seam.copy_number(torch.tensor(2.5))
    xpu.work(0.25)
    took = seam.between(first, seam.mark())
    assert not took.is_here()
    xpu.advance(1.0)
    assert (took.is_here(), took.value()) == (True, 0.25)
    assert (number.is_here(), number.value()) == (True, 2.5)
    assert seam.memory_figures().device == "xpu:1"
    assert (xpu.waits(), xpu.contexts) == ([], {1})
    assert (device_kind(), profiler_activity()) == ("xpu", "XPU")


def test_what_xpu_does_not_tell_is_null(xpu: FakeCuda) -> None:
    """The whole device is NVML's business; nobody tells when memory runs out."""
    seam: Any = Accelerator()
    seam.meet(torch.device("xpu", 1))
    assert seam.watch_out_of_memory(lambda *_: None)
    assert xpu.observers == []
    assert seam.device_sample() is None
    assert seam.device_totals(fresh=True) is None
    (note,) = seam.notes()
    assert "NVML knows no device of Intel's" in note


def test_a_capture_on_xpu_is_left_alone(xpu: FakeCuda) -> None:
    """Nothing is asked while one is under way."""
    seam: Any = Accelerator()
    seam.meet(torch.device("xpu", 1))
    mark, graph = seam.mark(), graph_class()()
    with torch.xpu.Stream(torch.device("xpu", 1)):
        captures.begins(graph)
        graph.capture_begin()
        assert is_capturing()
        assert (mark.is_here(), seam.mark(), seam.copy_number(torch.tensor(1.0))) == (
            False,
            None,
            None,
        )
        graph.capture_end()
        captures.ended(graph)
    assert mark.is_here()


def test_rocm_is_cuda_but_for_the_driver(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch calls its devices CUDA's; NVML, which knows none of AMD's, is not asked."""
    monkeypatch.setattr(torch.version, "hip", "6.4", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    seam: Any = Accelerator()
    seam.meet(torch.device("cuda", 1))
    number, mark = seam.copy_number(torch.tensor(1.5)), seam.mark()
    assert (number.is_here(), number.value(), mark.is_here()) == (True, 1.5, True)
    assert seam.memory_figures().device == "cuda:1"
    assert (seam.device_sample(), seam.device_totals(fresh=True)) == (None, None)
    (note,) = seam.notes()
    assert "AMD" in note
    assert "nvidia-ml-py" not in note
    assert cuda.waits() == []
